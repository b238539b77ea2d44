#!/bin/bash
python3 -m sglang_router.launch_router --pd-disaggregation --policy cache_aware \
  --prefill http://192.0.2.20:8001 8997 --decode http://192.0.2.21:8001 --host 0.0.0.0 --port 6688
