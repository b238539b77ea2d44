#!/bin/bash
export HCCL_BUFFSIZE=200 DEEPEP_HCCL_BUFFSIZE=1800 HCCL_OP_EXPANSION_MODE=AIV
export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=128
export DEEPEP_NORMAL_LONG_SEQ_ROUND=256
export DEEPEP_NORMAL_LONG_SEQ_PER_ROUND_TOKENS=1024
python3 -m sglang.launch_server --model-path /models/DeepSeek-R1-w8a8 --trust-remote-code \
  --host 0.0.0.0 --port 8000 --device npu --attention-backend ascend --quantization modelslim \
  --tp-size 16 --dp-size 4 --enable-dp-attention --moe-a2a-backend deepep --deepep-mode auto \
  --mem-fraction-static 0.78 --chunked-prefill-size 16384 --max-running-requests 64 --cuda-graph-bs-decode 2 4 8 16
