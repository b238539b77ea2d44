#!/bin/bash
python load_balance_proxy_server_example.py --host 0.0.0.0 --port 8000 \
  --prefiller-hosts 192.0.2.30 --prefiller-ports 8100 --decoder-hosts 192.0.2.30 --decoder-ports 8200
