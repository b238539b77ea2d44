#!/bin/bash
export HCCL_IF_IP=192.0.2.21
export HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1024
export PYTHONHASHSEED=1
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name m --port 8200 --trust-remote-code \
  --tensor-parallel-size 8 --data-parallel-size 2 \
  --enable-expert-parallel --quantization ascend --max-model-len 65536 --max-num-seqs 16 \
  --max-num-batched-tokens 256 \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_consumer",
    "kv_port":"36200","engine_id":"1","kv_connector_extra_config":{
    "prefill":{"dp_size":2,"tp_size":8},"decode":{"dp_size":2,"tp_size":8}}}'
