#!/bin/bash
export HCCL_IF_IP=192.0.2.20
export HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1024
export PYTHONHASHSEED=0
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name m --port 8100 --trust-remote-code \
  --tensor-parallel-size 8 --data-parallel-size 2 \
  --enable-expert-parallel --quantization ascend --max-model-len 65536 --max-num-seqs 16 \
  --max-num-batched-tokens 8192 --enforce-eager \
  --additional-config '{"scheduler_config":{"enable_balance_scheduling":true}}' \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_producer",
    "kv_port":"36000","engine_id":"0","kv_connector_extra_config":{
    "prefill":{"dp_size":2,"tp_size":8},"decode":{"dp_size":2,"tp_size":8}}}'
