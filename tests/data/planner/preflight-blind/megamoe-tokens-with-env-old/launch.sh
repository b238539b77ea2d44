#!/bin/bash
export HCCL_BUFFSIZE=1024
export VLLM_ASCEND_ENABLE_MLAPO=0
vllm serve /models/DeepSeek-V3.1-w8a8 --served-model-name ds --port 8006 \
  --tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16
