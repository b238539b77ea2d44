#!/usr/bin/env bash
# Compare with the forecast in plan.yaml. Run twice: the first run warms graphs and caches.
set -euo pipefail
exec vllm bench serve --backend openai-chat --base-url "http://192.0.2.10:8000" --endpoint /v1/chat/completions \
  --model k3 --tokenizer /models/Kimi-K3-w4a8 --dataset-name random --random-input-len 8192 --random-output-len 1024 \
  --num-prompts 256 --max-concurrency 64 --ignore-eos --percentile-metrics ttft,tpot,itl,e2el --seed 1
