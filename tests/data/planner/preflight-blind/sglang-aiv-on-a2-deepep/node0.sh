#!/bin/bash
# Atlas 800 A2
export HCCL_BUFFSIZE=1024
export HCCL_OP_EXPANSION_MODE=AIV
python3 -m sglang.launch_server --model-path /models/DeepSeek-V4-Flash-w8a8 --trust-remote-code \
  --host 0.0.0.0 --port 8000 --device npu --attention-backend ascend --quantization modelslim \
  --tp-size 8 --moe-a2a-backend deepep --deepep-mode auto \
  --mem-fraction-static 0.78 --chunked-prefill-size 4096 --max-running-requests 32 --cuda-graph-bs-decode 2 4 8 16 32
