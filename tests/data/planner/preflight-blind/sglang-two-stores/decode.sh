#!/bin/bash
export ASCEND_MF_STORE_URL="tcp://192.0.2.21:24669"
export HCCL_BUFFSIZE=1200
python3 -m sglang.launch_server --model-path /models/Kimi-K2.6-w4a8 --trust-remote-code \
  --host 192.0.2.21 --port 8001 --device npu --attention-backend ascend --quantization modelslim \
  --disaggregation-mode decode --disaggregation-transfer-backend ascend \
  --tp-size 16 --mem-fraction-static 0.82 --max-running-requests 32 --cuda-graph-bs-decode 2 4 8 16 32
