#!/bin/bash
export HCCL_BUFFSIZE=1024
export ASCEND_RT_VISIBLE_DEVICES=1,2,3,4,5,6,7,8
vllm serve /models/DeepSeek-V4-Flash-w8a8 --served-model-name ds --port 8006 \
  --tensor-parallel-size 8 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16
