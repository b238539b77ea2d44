#!/usr/bin/env bash
# k3-mixed: mixed0-node2 on 192.0.2.12. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
: "${NIC:?set NIC to the interface of the cluster network}"
export HCCL_IF_IP=192.0.2.12
export HCCL_SOCKET_IFNAME="$NIC"
export GLOO_SOCKET_IFNAME="$NIC"
export TP_SOCKET_IFNAME="$NIC"
export HCCL_BUFFSIZE=800
export HCCL_CONNECT_TIMEOUT=1800
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export VLLM_ENGINE_READY_TIMEOUT_S=7200
exec vllm serve /models/Kimi-K3-w4a8 --served-model-name k3 --headless --tensor-parallel-size 16 \
  --data-parallel-size 4 --data-parallel-size-local 1 --data-parallel-address 192.0.2.10 \
  --data-parallel-rpc-port 13389 --data-parallel-start-rank 2 --enable-expert-parallel --quantization ascend \
  --max-model-len 131072 --max-num-batched-tokens 24576 --max-num-seqs 16 --gpu-memory-utilization 0.9 \
  --enable-prefix-caching --mm-processor-cache-gb 0 --mm-encoder-tp-mode data --tokenizer-mode kimi_k3 \
  --reasoning-parser kimi_k3 --enable-auto-tool-choice --tool-call-parser kimi_k3 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[8,16,32,64,128]}' \
  --additional-config '{"enable_flashcomm1":true}' \
  --speculative-config '{"method":"dspark","model":"/models/Kimi-K3-DSpark","num_speculative_tokens":7,"draft_tensor_parallel_size":16,"max_model_len":4096,"enforce_eager":true}'
