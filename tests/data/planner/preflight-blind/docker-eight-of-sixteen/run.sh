#!/bin/bash
devs=""; for i in $(seq 0 7); do devs="$devs --device /dev/davinci$i"; done
docker run --rm --net=host --shm-size=256g $devs \
  --device /dev/davinci_manager --device /dev/devmm_svm --device /dev/hisi_hdc \
  -v /usr/local/dcmi:/usr/local/dcmi -v /usr/local/Ascend/driver:/usr/local/Ascend/driver \
  -v /etc/hccn.conf:/etc/hccn.conf -v /models:/models -e HCCL_BUFFSIZE=1024 \
  ascend/vllm-ascend:v0.30.0rc2-a3 \
  vllm serve /models/DeepSeek-V3.1-w8a8 --tensor-parallel-size 8 --data-parallel-size 2 \
    --enable-expert-parallel --quantization ascend --max-model-len 32768 --max-num-batched-tokens 8192 --max-num-seqs 16
