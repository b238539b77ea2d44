#!/usr/bin/env bash
# k26-sgl: decode0-node0 on 192.0.2.21. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
export HCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1200
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export STREAMS_PER_DEVICE=32
export DEEPEP_HCCL_BUFFSIZE=400
export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=32
export HCCL_OP_EXPANSION_MODE=AIV
export ASCEND_MF_STORE_URL=tcp://192.0.2.20:24669
exec python3 -m sglang.launch_server --model-path /models/Kimi-K2.6-w4a8 --served-model-name kimi \
  --trust-remote-code --host 192.0.2.21 --port 8200 --device npu --attention-backend ascend \
  --quantization modelslim --dtype bfloat16 --tp-size 16 --dp-size 2 --enable-dp-attention --enable-dp-lm-head \
  --moe-a2a-backend deepep --deepep-mode low_latency --mem-fraction-static 0.82 --context-length 131072 \
  --chunked-prefill-size 16384 --max-running-requests 32 --cuda-graph-bs-decode 2 4 8 16 \
  --reasoning-parser kimi_k2 --tool-call-parser kimi_k2 --watchdog-timeout 9000 --disaggregation-mode decode \
  --disaggregation-transfer-backend ascend
