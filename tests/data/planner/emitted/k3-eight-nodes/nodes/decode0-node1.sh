#!/usr/bin/env bash
# k3-pd: decode0-node1 on 192.0.2.51. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
export HCCL_IF_IP=192.0.2.51
export HCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
export TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1024
export HCCL_CONNECT_TIMEOUT=1800
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export VLLM_ENGINE_READY_TIMEOUT_S=7200
export PYTHONHASHSEED=0
export ASCEND_ENABLE_USE_FABRIC_MEM=1
export HCCL_OP_EXPANSION_MODE=AIV
exec vllm serve /models/Kimi-K3-w4a8 --served-model-name k3 --host 0.0.0.0 --port 8200 \
  --tensor-parallel-size 16 --data-parallel-size 4 --data-parallel-rank 1 --data-parallel-address 192.0.2.50 \
  --data-parallel-rpc-port 13390 --enable-expert-parallel --quantization ascend --max-model-len 133120 \
  --max-num-batched-tokens 256 --max-num-seqs 16 --gpu-memory-utilization 0.9 --enable-prefix-caching \
  --mm-processor-cache-gb 0 --mm-encoder-tp-mode data --tokenizer-mode kimi_k3 --reasoning-parser kimi_k3 \
  --enable-auto-tool-choice --tool-call-parser kimi_k3 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[8,16,32,64,128]}' \
  --additional-config '{"scheduler_config":{"recompute_scheduler_enable":true}}' \
  --speculative-config '{"method":"dspark","model":"/models/Kimi-K3-DSpark","num_speculative_tokens":7,"draft_tensor_parallel_size":16,"max_model_len":4096,"enforce_eager":true}' \
  --kv-transfer-config '{"kv_connector":"MultiConnector","kv_role":"kv_consumer","engine_id":"320","kv_load_failure_policy":"fail","kv_connector_extra_config":{"prefill":{"dp_size":4,"tp_size":16},"decode":{"dp_size":4,"tp_size":16},"connectors":[{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_consumer","kv_buffer_device":"npu","kv_port":"36200","kv_connector_extra_config":{"prefill":{"dp_size":4,"tp_size":16},"decode":{"dp_size":4,"tp_size":16}}}]}}'
