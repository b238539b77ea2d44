#!/usr/bin/env bash
# k26-sgl: router. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
exec python3 -m sglang_router.launch_router --pd-disaggregation --prefill http://192.0.2.20:8100 8998 \
  --decode http://192.0.2.21:8200 --policy cache_aware --host 0.0.0.0 --port 9000
