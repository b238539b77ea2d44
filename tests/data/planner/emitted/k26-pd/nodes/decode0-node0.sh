#!/usr/bin/env bash
# k26-pd: decode0-node0 on 192.0.2.21. Written by perigee plan emit; change the plan, not this file.
set -euo pipefail
export HCCL_IF_IP=192.0.2.21
export HCCL_SOCKET_IFNAME=eth0
export GLOO_SOCKET_IFNAME=eth0
export TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=800
export HCCL_CONNECT_TIMEOUT=1800
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export VLLM_ENGINE_READY_TIMEOUT_S=7200
export PYTHONHASHSEED=0
export ASCEND_ENABLE_USE_FABRIC_MEM=1
export HCCL_OP_EXPANSION_MODE=AIV
trap 'kill 0' EXIT
ASCEND_RT_VISIBLE_DEVICES=0,1,2,3 \
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --host 0.0.0.0 --port 8200 --tensor-parallel-size 4 \
  --data-parallel-size 4 --data-parallel-rank 0 --data-parallel-address 192.0.2.21 \
  --data-parallel-rpc-port 13390 --enable-expert-parallel --quantization ascend --trust-remote-code \
  --max-model-len 131072 --max-num-batched-tokens 256 --max-num-seqs 16 --gpu-memory-utilization 0.92 \
  --enable-prefix-caching --reasoning-parser kimi_k2 --enable-auto-tool-choice --tool-call-parser kimi_k2 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[16,64,128,256]}' \
  --additional-config '{"recompute_scheduler_enable":true}' \
  --speculative-config '{"method":"dflash","model":"/models/Kimi-K2.6-DFlash","num_speculative_tokens":15,"enforce_eager":true}' \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_consumer","kv_buffer_device":"npu","kv_port":"36200","engine_id":"64","kv_connector_extra_config":{"prefill":{"dp_size":2,"tp_size":8},"decode":{"dp_size":4,"tp_size":4}}}' &
ASCEND_RT_VISIBLE_DEVICES=4,5,6,7 \
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --host 0.0.0.0 --port 8201 --tensor-parallel-size 4 \
  --data-parallel-size 4 --data-parallel-rank 1 --data-parallel-address 192.0.2.21 \
  --data-parallel-rpc-port 13390 --enable-expert-parallel --quantization ascend --trust-remote-code \
  --max-model-len 131072 --max-num-batched-tokens 256 --max-num-seqs 16 --gpu-memory-utilization 0.92 \
  --enable-prefix-caching --reasoning-parser kimi_k2 --enable-auto-tool-choice --tool-call-parser kimi_k2 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[16,64,128,256]}' \
  --additional-config '{"recompute_scheduler_enable":true}' \
  --speculative-config '{"method":"dflash","model":"/models/Kimi-K2.6-DFlash","num_speculative_tokens":15,"enforce_eager":true}' \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_consumer","kv_buffer_device":"npu","kv_port":"36200","engine_id":"65","kv_connector_extra_config":{"prefill":{"dp_size":2,"tp_size":8},"decode":{"dp_size":4,"tp_size":4}}}' &
ASCEND_RT_VISIBLE_DEVICES=8,9,10,11 \
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --host 0.0.0.0 --port 8202 --tensor-parallel-size 4 \
  --data-parallel-size 4 --data-parallel-rank 2 --data-parallel-address 192.0.2.21 \
  --data-parallel-rpc-port 13390 --enable-expert-parallel --quantization ascend --trust-remote-code \
  --max-model-len 131072 --max-num-batched-tokens 256 --max-num-seqs 16 --gpu-memory-utilization 0.92 \
  --enable-prefix-caching --reasoning-parser kimi_k2 --enable-auto-tool-choice --tool-call-parser kimi_k2 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[16,64,128,256]}' \
  --additional-config '{"recompute_scheduler_enable":true}' \
  --speculative-config '{"method":"dflash","model":"/models/Kimi-K2.6-DFlash","num_speculative_tokens":15,"enforce_eager":true}' \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_consumer","kv_buffer_device":"npu","kv_port":"36200","engine_id":"66","kv_connector_extra_config":{"prefill":{"dp_size":2,"tp_size":8},"decode":{"dp_size":4,"tp_size":4}}}' &
ASCEND_RT_VISIBLE_DEVICES=12,13,14,15 \
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --host 0.0.0.0 --port 8203 --tensor-parallel-size 4 \
  --data-parallel-size 4 --data-parallel-rank 3 --data-parallel-address 192.0.2.21 \
  --data-parallel-rpc-port 13390 --enable-expert-parallel --quantization ascend --trust-remote-code \
  --max-model-len 131072 --max-num-batched-tokens 256 --max-num-seqs 16 --gpu-memory-utilization 0.92 \
  --enable-prefix-caching --reasoning-parser kimi_k2 --enable-auto-tool-choice --tool-call-parser kimi_k2 \
  --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY","cudagraph_capture_sizes":[16,64,128,256]}' \
  --additional-config '{"recompute_scheduler_enable":true}' \
  --speculative-config '{"method":"dflash","model":"/models/Kimi-K2.6-DFlash","num_speculative_tokens":15,"enforce_eager":true}' \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_consumer","kv_buffer_device":"npu","kv_port":"36200","engine_id":"67","kv_connector_extra_config":{"prefill":{"dp_size":2,"tp_size":8},"decode":{"dp_size":4,"tp_size":4}}}' &
wait -n
