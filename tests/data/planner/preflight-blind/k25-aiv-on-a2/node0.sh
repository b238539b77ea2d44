#!/bin/bash
# Atlas 800 A2, node 0 of 2
export HCCL_IF_IP=192.0.2.10
export HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1024
export HCCL_OP_EXPANSION_MODE=AIV
vllm serve /models/Kimi-K2.5-w4a8 --served-model-name kimi --port 8088 --trust-remote-code \
  --tensor-parallel-size 8 --data-parallel-size 2 --data-parallel-size-local 1 \
  --data-parallel-address 192.0.2.10 --data-parallel-rpc-port 13389 \
  --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16
