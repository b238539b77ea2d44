#!/bin/bash
export ASCEND_MF_STORE_URL="tcp://192.0.2.20:24669"
export HCCL_BUFFSIZE=1600
python3 -m sglang.launch_server --model-path /models/Kimi-K2.6-w4a8 --trust-remote-code \
  --host 192.0.2.20 --port 8998 --device npu --attention-backend ascend --quantization modelslim \
  --disaggregation-mode prefill --disaggregation-transfer-backend ascend --disaggregation-bootstrap-port 8998 \
  --tp-size 16 --mem-fraction-static 0.78 --chunked-prefill-size 16384
