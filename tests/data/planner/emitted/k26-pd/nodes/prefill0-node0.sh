#!/usr/bin/env bash
# k26-pd: prefill0-node0 on 192.0.2.20. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
export HCCL_IF_IP=192.0.2.20
export HCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
export TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=512
export HCCL_CONNECT_TIMEOUT=1800
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export VLLM_ENGINE_READY_TIMEOUT_S=7200
export PYTHONHASHSEED=0
export ASCEND_ENABLE_USE_FABRIC_MEM=1
trap 'kill 0' EXIT
ASCEND_RT_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 \
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --host 0.0.0.0 --port 8100 --tensor-parallel-size 8 \
  --data-parallel-size 2 --data-parallel-rank 0 --data-parallel-address 192.0.2.20 \
  --data-parallel-rpc-port 13389 --enable-expert-parallel --quantization ascend --trust-remote-code \
  --max-model-len 131072 --max-num-batched-tokens 8192 --max-num-seqs 16 --gpu-memory-utilization 0.94 \
  --enable-prefix-caching --reasoning-parser kimi_k2 --enable-auto-tool-choice --tool-call-parser kimi_k2 \
  --enforce-eager \
  --speculative-config '{"method":"dflash","model":"/models/Kimi-K2.6-DFlash","num_speculative_tokens":1,"enforce_eager":true}' \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_producer","kv_buffer_device":"npu","kv_port":"36000","engine_id":"0","kv_connector_extra_config":{"prefill":{"dp_size":2,"tp_size":8},"decode":{"dp_size":4,"tp_size":4}}}' &
ASCEND_RT_VISIBLE_DEVICES=8,9,10,11,12,13,14,15 \
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --host 0.0.0.0 --port 8101 --tensor-parallel-size 8 \
  --data-parallel-size 2 --data-parallel-rank 1 --data-parallel-address 192.0.2.20 \
  --data-parallel-rpc-port 13389 --enable-expert-parallel --quantization ascend --trust-remote-code \
  --max-model-len 131072 --max-num-batched-tokens 8192 --max-num-seqs 16 --gpu-memory-utilization 0.94 \
  --enable-prefix-caching --reasoning-parser kimi_k2 --enable-auto-tool-choice --tool-call-parser kimi_k2 \
  --enforce-eager \
  --speculative-config '{"method":"dflash","model":"/models/Kimi-K2.6-DFlash","num_speculative_tokens":1,"enforce_eager":true}' \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_producer","kv_buffer_device":"npu","kv_port":"36000","engine_id":"1","kv_connector_extra_config":{"prefill":{"dp_size":2,"tp_size":8},"decode":{"dp_size":4,"tp_size":4}}}' &
wait -n
