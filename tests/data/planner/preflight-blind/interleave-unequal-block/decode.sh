#!/bin/bash
export HCCL_IF_IP=192.0.2.50
export HCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0 TP_SOCKET_IFNAME=eth0
export HCCL_BUFFSIZE=1024
export PYTHONHASHSEED=0
export ASCEND_ENABLE_USE_FABRIC_MEM=1
vllm serve /models/Kimi-K2.6-w4a8 --served-model-name kimi --port 8200 --trust-remote-code \
  --tensor-parallel-size 16 --decode-context-parallel-size 8 \
  --block-size 128 --cp-kv-cache-interleave-size 16 \
  --enable-expert-parallel --quantization ascend \
  --max-model-len 131072 --max-num-batched-tokens 256 --max-num-seqs 16 \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_consumer",
    "kv_port":"36200","engine_id":"1","kv_connector_extra_config":{
    "prefill":{"dp_size":1,"tp_size":16},"decode":{"dp_size":1,"tp_size":16}}}'
