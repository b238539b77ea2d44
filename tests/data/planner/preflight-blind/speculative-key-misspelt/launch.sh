#!/bin/bash
export HCCL_BUFFSIZE=1024
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --port 8088 --trust-remote-code \
  --tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16 \
  --speculative-config '{"method":"dflash","model":"/models/Kimi-K2.6-DFlash","num_speculative_token":7}'
