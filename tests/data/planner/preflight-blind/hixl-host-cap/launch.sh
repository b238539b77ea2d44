#!/bin/bash
export HCCL_BUFFSIZE=1024 PYTHONHASHSEED=0
export MOONCAKE_CONFIG_PATH=/etc/mooncake.json
vllm serve /models/DeepSeek-V3.1-w8a8 --served-model-name dsv31 --port 8006 \
  --tensor-parallel-size 8 --data-parallel-size 2 --enable-expert-parallel --quantization ascend \
  --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16 --enable-prefix-caching \
  --kv-transfer-config '{"kv_connector":"AscendStoreConnector","kv_role":"kv_both",
    "kv_connector_extra_config":{"backend":"mooncake"}}'
