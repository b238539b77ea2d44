#!/bin/bash
export HCCL_BUFFSIZE=1024
vllm serve /models/DeepSeek-V3.1-w8a8 --served-model-name ds --port 8006 \
  --tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[1,2,4,8]}'
