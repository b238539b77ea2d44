#!/bin/bash
export HCCL_BUFFSIZE=1024
vllm serve /models/DeepSeek-V3.2-w8a8 --served-model-name ds --port 8006 \
  --tensor-parallel-size 8 --decode-context-parallel-size 8 \
  --enable-expert-parallel --quantization ascend \
  --max-model-len 65536 --max-num-batched-tokens 8192 --max-num-seqs 8
