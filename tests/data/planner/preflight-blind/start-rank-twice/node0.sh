#!/bin/bash
export HCCL_IF_IP=192.0.2.10
export HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=800 
export HCCL_CONNECT_TIMEOUT=1800
vllm serve /models/Kimi-K3-w4a8 --served-model-name k3 --host 0.0.0.0 --port 8000 \
  --tensor-parallel-size 16 --data-parallel-size 4 --data-parallel-size-local 1 \
  --data-parallel-address 192.0.2.10 --data-parallel-rpc-port 13389 \
  --enable-expert-parallel --quantization ascend --enable-prefix-caching \
  --max-model-len 131072 --max-num-batched-tokens 8192 --max-num-seqs 16 --gpu-memory-utilization 0.9 \
  --tokenizer-mode kimi_k3 --reasoning-parser kimi_k3 --enable-auto-tool-choice --tool-call-parser kimi_k3 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY"}'
