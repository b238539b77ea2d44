#!/usr/bin/env python3
"""`perigee serve` of the generated model under `perigee verify endpoint`: exit codes, reports, exact equality."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

PROGRAM, PATIENCE = sys.argv[1], int(sys.argv[2])
SUITES = "api,tokenizer,prompt,answers,tools,cache,logprobs"  # the others: endpoint_test.cc


def run(*arguments, code):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=400 * PATIENCE)
    if done.returncode not in (code if isinstance(code, tuple) else (code,)):
        sys.exit(f"{arguments}: exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main():
    environment = {**os.environ, "PERIGEE_API_KEYS": "secret-of-the-test"}
    server = subprocess.Popen([PROGRAM, "serve", "--port", "0", "--quiet", "--threads", "2", "--context", "8192",
                               "--memory", "1G"], stderr=subprocess.PIPE, text=True, env=environment)
    try:
        base = None
        for line in server.stderr:
            if "listening on " in line:
                base = line.split()[-1]
            if line.startswith("ready"):
                break
        if base is None:
            sys.exit("perigee serve did not start")
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            key = folder / "key"
            key.write_text("secret-of-the-test\n")
            # Without its key nothing can be asked.
            run("verify", "endpoint", base, code=2)
            common = ["--api-key-file", str(key), "--cases", "10", "--cache-tokens", "1200", "--tolerance", "0"]
            reference = folder / "reference.json"
            run("verify", "endpoint", base, "--suite", "logprobs", "--save-reference", str(reference), *common, code=0)
            html, markdown = folder / "report.html", folder / "report.md"
            text = run("verify", "--endpoint", base + "/v1", "--suite", SUITES, "--reference", str(reference), "--json",
                       "--html", str(html), "--markdown", str(markdown), *common, code=0)
            report = json.loads(text)
            verdicts = {(c["suite"], c["name"]): c["verdict"] for c in report["checks"]}
            for needed in [("tokenizer", "text to ids"), ("prompt", "rendered ids"),
                           ("prompt", "prompt tokens of usage"), ("answers", "streamed equals whole"),
                           ("cache", "a warm prompt is found"),
                           ("cache", "a warm answer equals the cold one"),
                           ("logprobs", "greedy answers against the reference")]:
                if verdicts.get(needed) != "pass":
                    sys.exit(f"{needed}: {verdicts.get(needed)}\n{text}")
            # Random weights seldom end a call within the limit; a call that does not match would be a failure.
            for name in ["named call matches its schema", "the same, streamed"]:
                if verdicts.get(("tools", name)) not in ("pass", "inconclusive"):
                    sys.exit(f"tools, {name}: {verdicts.get(('tools', name))}\n{text}")
            if "secret-of-the-test" in text + html.read_text() + markdown.read_text():
                sys.exit("a report shows the API key")
            word = "pass" if report["passed"] else "fail"
            if f"Verdict: <span class=\"{word}\">" not in html.read_text() or f"**{word}**" not in markdown.read_text():
                sys.exit("the reports do not say the verdict")
            print("\n".join(f"{s}: {n}: {v}" for (s, n), v in verdicts.items()))
        # Usage mistakes.
        run("verify", code=2)
        run("verify", "endpoint", code=2)
        run("verify", "endpoint", "no-url", code=2)
        run("verify", "endpoint", base, "--suite", "everything", code=2)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


if __name__ == "__main__":
    main()
