#!/bin/bash
export HCCL_IF_IP=192.0.2.11
export HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1024 HCCL_CONNECT_TIMEOUT=1800
vllm serve /models/GLM-5.1-w8a8 --served-model-name glm --headless --data-parallel-start-rank 2 \
  --tensor-parallel-size 8 --data-parallel-size 4 --data-parallel-size-local 2 \
  --data-parallel-address 192.0.2.10 --data-parallel-rpc-port 13389 \
  --enable-expert-parallel --quantization ascend --max-model-len 65536 --max-num-batched-tokens 4096 --max-num-seqs 16 \
  --speculative-config '{"method":"mtp","num_speculative_tokens":3}' \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[4,8,16,32,64]}'
