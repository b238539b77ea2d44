#!/bin/bash
export HCCL_BUFFSIZE=1024
vllm serve /models/Kimi-K2.5-w4a8 --served-model-name ds --port 8006 \
  --tensor-parallel-size 8 --data-parallel-size 1 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16
