#!/usr/bin/env bash
# Compare with the forecast in plan.yaml. Run twice: the first run warms graphs and caches.
set -euo pipefail
exec vllm bench serve --backend openai-chat --base-url "http://${FRONT:-127.0.0.1}:9000" --endpoint /v1/chat/completions \
  --model kimi --tokenizer /models/Kimi-K2.6-w4a8 --dataset-name random --random-input-len 8192 --random-output-len 1024 \
  --num-prompts 256 --max-concurrency 64 --ignore-eos --percentile-metrics ttft,tpot,itl,e2el --seed 1
