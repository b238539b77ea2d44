#!/bin/bash
export HCCL_BUFFSIZE=1024
export PYTHONHASHSEED=0 HCCL_IF_IP=192.0.2.21
vllm serve /models/DeepSeek-V3.1-w8a8 --served-model-name ds --port 8006 \
  --tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16 \
  --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_consumer","kv_port":"36200","engine_id":"0",
    "kv_connector_extra_config":{"prefill":{"dp_size":2,"tp_size":8},
    "decode":{"dp_size":2,"tp_size":8}}}'
