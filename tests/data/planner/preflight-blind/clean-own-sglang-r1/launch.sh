#!/bin/bash
set -euo pipefail
export HCCL_BUFFSIZE=1600 HCCL_OP_EXPANSION_MODE=AIV
export SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=64
PORT=${PORT:-8000}
args=(--model-path /models/DeepSeek-R1-w4a8 --trust-remote-code --host 0.0.0.0 --port "$PORT"
  --device npu --attention-backend ascend --quantization modelslim)
args+=(--tp-size 16 --dp-size 16 --enable-dp-attention --moe-a2a-backend deepep --deepep-mode auto)
exec python3 -m sglang.launch_server "${args[@]}" --mem-fraction-static 0.8 --max-running-requests 128 --cuda-graph-bs-decode 2 4 8
