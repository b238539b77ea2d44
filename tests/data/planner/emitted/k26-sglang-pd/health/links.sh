#!/usr/bin/env bash
# Run on every node before the first start: link, network health, gateway and TLS switch of each device.
set -uo pipefail
for i in $(seq 0 15); do
  for what in -lldp -link -net_health -netdetect -gateway -tls; do
    echo "== device $i $what"
    hccn_tool -i "$i" "$what" -g || echo "FAILED device $i $what"
  done
done
cmp -s /etc/hccn.conf /dev/null && echo 'FAILED /etc/hccn.conf is empty'
npu-smi info -t spod-info -i 0 || echo 'FAILED SuperPoD information'
