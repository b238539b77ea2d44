#!/bin/bash
export HCCL_BUFFSIZE=1024
vllm serve /models/DeepSeek-V3.1-w8a8 --served-model-name ds --port 8006 \
  --tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel --quantization ascend \
  --gpu-memory-utilization 90 \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16
