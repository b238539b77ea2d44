#!/usr/bin/env bash
# Every server answers, and a request through the front gives tokens. Exit code 0: healthy.
set -uo pipefail
failed=0
for url in \
  http://192.0.2.10:8000 \
; do
  if curl -fsS --max-time 10 -o /dev/null "$url/health"; then echo "ok    $url"; else echo "DOWN  $url"; failed=1; fi
done
reply=$(curl -fsS --max-time 120 "http://192.0.2.10:8000/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"model":"k3","messages":[{"role":"user","content":"What is 17 + 25? Answer with the number."}],"max_tokens":64,"temperature":0}') || failed=1
case "$reply" in
  *42*) echo "ok    answer" ;;
  *) echo "WRONG answer: $reply"; failed=1 ;;
esac
exit $failed
