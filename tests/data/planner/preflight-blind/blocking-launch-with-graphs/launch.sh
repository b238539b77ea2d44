#!/bin/bash
export HCCL_BUFFSIZE=1024
export ASCEND_LAUNCH_BLOCKING=1
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --port 8088 --trust-remote-code \
  --tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY"}'
