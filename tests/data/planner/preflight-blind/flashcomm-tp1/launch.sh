#!/bin/bash
export HCCL_BUFFSIZE=1024
vllm serve /models/DeepSeek-V4-Flash-w8a8 --served-model-name ds --port 8006 \
  --tensor-parallel-size 1 --data-parallel-size 16 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16 \
  --additional-config '{"enable_flashcomm1":true}'
