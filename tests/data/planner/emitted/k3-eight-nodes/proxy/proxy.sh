#!/usr/bin/env bash
# k3-pd: front of the prefill and decode servers. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
EXAMPLES="${EXAMPLES:-/vllm-workspace/vllm-ascend/examples/disaggregated_prefill_v1}"
exec python3 "$EXAMPLES/load_balance_proxy_server_example.py" --host 0.0.0.0 --port 9000 \
  --prefiller-hosts 192.0.2.10 192.0.2.11 192.0.2.12 192.0.2.13 --prefiller-ports 8100 8100 8100 8100 \
  --decoder-hosts 192.0.2.50 192.0.2.51 192.0.2.52 192.0.2.53 --decoder-ports 8200 8200 8200 8200
