#!/usr/bin/env bash
# k26-sgl: prefill0-node0 on 192.0.2.20. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
export HCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1600
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export STREAMS_PER_DEVICE=32
export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=32
export DEEPEP_NORMAL_LONG_SEQ_ROUND=64
export DEEPEP_NORMAL_LONG_SEQ_PER_ROUND_TOKENS=512
export HCCL_OP_EXPANSION_MODE=AIV
export ASCEND_MF_STORE_URL=tcp://192.0.2.20:24669
exec python3 -m sglang.launch_server --model-path /models/Kimi-K2.6-w4a8 --served-model-name kimi \
  --trust-remote-code --host 192.0.2.20 --port 8100 --device npu --attention-backend ascend \
  --quantization modelslim --dtype bfloat16 --tp-size 16 --moe-a2a-backend deepep --deepep-mode normal \
  --mem-fraction-static 0.78 --context-length 131072 --chunked-prefill-size 16384 --max-running-requests 16 \
  --disable-cuda-graph --reasoning-parser kimi_k2 --tool-call-parser kimi_k2 --watchdog-timeout 9000 \
  --disaggregation-mode prefill --disaggregation-transfer-backend ascend --disaggregation-bootstrap-port 8998
