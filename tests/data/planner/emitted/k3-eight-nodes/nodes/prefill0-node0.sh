#!/usr/bin/env bash
# k3-pd: prefill0-node0 on 192.0.2.10. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
export HCCL_IF_IP=192.0.2.10
export HCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
export TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1024
export HCCL_CONNECT_TIMEOUT=1800
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export VLLM_ENGINE_READY_TIMEOUT_S=7200
export PYTHONHASHSEED=0
export ASCEND_ENABLE_USE_FABRIC_MEM=1
exec vllm serve /models/Kimi-K3-w4a8 --served-model-name k3 --host 0.0.0.0 --port 8100 \
  --tensor-parallel-size 16 --data-parallel-size 4 --data-parallel-rank 0 --data-parallel-address 192.0.2.10 \
  --data-parallel-rpc-port 13389 --enable-expert-parallel --quantization ascend --max-model-len 133120 \
  --max-num-batched-tokens 8192 --max-num-seqs 16 --gpu-memory-utilization 0.9 --enable-prefix-caching \
  --mm-processor-cache-gb 0 --mm-encoder-tp-mode data --skip-mm-profiling --safetensors-load-strategy prefetch \
  --mamba-cache-mode align --tokenizer-mode kimi_k3 --reasoning-parser kimi_k3 --enable-auto-tool-choice \
  --tool-call-parser kimi_k3 --enforce-eager \
  --additional-config '{"enable_flashcomm1":true,"multistream_overlap_shared_expert":true}' \
  --speculative-config '{"method":"dspark","model":"/models/Kimi-K3-DSpark","num_speculative_tokens":7,"draft_tensor_parallel_size":16,"max_model_len":4096,"enforce_eager":true}' \
  --kv-transfer-config '{"kv_connector":"MultiConnector","kv_role":"kv_producer","engine_id":"0","kv_load_failure_policy":"fail","kv_connector_extra_config":{"prefill":{"dp_size":4,"tp_size":16},"decode":{"dp_size":4,"tp_size":16},"connectors":[{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_producer","kv_buffer_device":"npu","kv_port":"36000","kv_connector_extra_config":{"prefill":{"dp_size":4,"tp_size":16},"decode":{"dp_size":4,"tp_size":16}}}]}}'
