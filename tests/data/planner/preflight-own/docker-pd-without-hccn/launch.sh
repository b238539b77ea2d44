#!/bin/bash
devs=""; for i in $(seq 0 15); do devs="$devs --device /dev/davinci$i"; done
docker run --rm --net=host --shm-size=128g $devs \
  --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc \
  -v /usr/local/Ascend/driver:/usr/local/Ascend/driver -v /models:/models \
  -e HCCL_BUFFSIZE=1024 \
  ascend/vllm-ascend:v0.30.0rc2-a3 \
  vllm serve /models/DeepSeek-V3.1-w8a8 --tensor-parallel-size 8 --data-parallel-size 2 \
    --enable-expert-parallel --quantization ascend --max-model-len 32768 --enforce-eager \
    --kv-transfer-config '{"kv_connector":"MooncakeConnectorV1","kv_role":"kv_producer","kv_port":"36000","engine_id":"0",
    "kv_connector_extra_config":{"prefill":{"dp_size":2,"tp_size":8},
    "decode":{"dp_size":2,"tp_size":8}}}'
