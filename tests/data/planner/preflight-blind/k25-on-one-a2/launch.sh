#!/bin/bash
export HCCL_BUFFSIZE=1024
vllm serve /models/Kimi-K2.5-w4a8 --served-model-name kimi --port 8088 --trust-remote-code \
  --tensor-parallel-size 8 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16
