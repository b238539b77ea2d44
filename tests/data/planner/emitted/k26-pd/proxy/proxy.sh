#!/usr/bin/env bash
# k26-pd: front of the prefill and decode servers. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
EXAMPLES="${EXAMPLES:-/vllm-workspace/vllm-ascend/examples/disaggregated_prefill_v1}"
exec python3 "$EXAMPLES/load_balance_proxy_server_example.py" --host 0.0.0.0 --port 9000 \
  --prefiller-hosts 192.0.2.20 192.0.2.20 --prefiller-ports 8100 8101 \
  --decoder-hosts 192.0.2.21 192.0.2.21 192.0.2.21 192.0.2.21 --decoder-ports 8200 8201 8202 8203
