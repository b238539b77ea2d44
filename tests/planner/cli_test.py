#!/usr/bin/env python3
"""`perigee plan` from outside: exit codes, JSON and SARIF output, determinism, and files that mean harm."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

PROGRAM, DATA, PATIENCE = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
HOSTILE_SECONDS = 20 * PATIENCE  # on a busy machine; each takes far less
FAILURES = []


def check(condition, what):
    if not condition:
        FAILURES.append(what)
        print("FAIL", what)


def run(*arguments, code=0, seconds=120):
    began = time.monotonic()
    try:
        done = subprocess.run([PROGRAM, "plan", *map(str, arguments)], capture_output=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        check(False, f"{' '.join(map(str, arguments))[:120]}: no end within {seconds} s")
        return ""
    taken = time.monotonic() - began
    codes = code if isinstance(code, tuple) else (code,)
    check(done.returncode in codes,
          f"{' '.join(map(str, arguments))[:160]}: exit {done.returncode}, expected {codes} ({taken:.1f} s): "
          f"{done.stderr.decode(errors='replace')[:300]}")
    return done.stdout.decode(errors="replace")


LAYOUT = ["--model", "kimi-k3", "--format", "w4a8", "--node", "atlas-800-a3", "--nodes", 4,
          "--tensor-parallel-size", 16, "--data-parallel-size", 4, "--max-num-batched-tokens", 8192,
          "--max-num-seqs", 16]
TRAFFIC = ["--prompts", 64, "--input", 2048, "--output", 256, "--concurrency", 32]


def fit_and_speed():
    fits = json.loads(run("fit", *LAYOUT, "--max-model-len", 131072, "--json"))
    check(fits["pools"][0]["verdict"] == "fits", "layout A fits")
    tall = json.loads(run("fit", *LAYOUT, "--max-model-len", 1048576, "--json", code=1))
    check(tall["pools"][0]["verdict"] == "does not fit", "1M on four nodes does not fit")
    run("fit", *LAYOUT, code=2)  # --max-model-len is never guessed
    run("fit", "--no-such-flag", code=2)
    run("fit", *LAYOUT[2:], "--model", "kimi-k9", "--max-model-len", 4096, code=2)
    text = run("fit", *LAYOUT, "--max-model-len", 131072)
    check("routed experts" in text and "[" in text, "fit prints its lines and the bar")
    speed = json.loads(run("speed", *LAYOUT, "--max-model-len", 131072, "--graph-sizes", "1,2,4,8,16", "--json"))
    step = speed["pools"][0]["decode_full"]
    check(20 < step["total_ms"] < 400, f"decode step {step}")
    run("speed", *LAYOUT, "--max-model-len", 131072, code=2)  # captured sizes are never guessed


def cpu_servers():
    linear = ["--hardware", "cpu", "--model", "kimi-linear-48b", "--format", "bf16", "--max-num-seqs", 8]
    report = json.loads(run("fit", *linear, "--cpu", "epyc-9654-2s", "--max-model-len", 131072, "--json"))
    check(report["verdict"] == "fits" and report["largest_context"] > 131072, "Kimi-Linear fits a large server")
    decode = report["speeds"][0]
    check(decode["bound"] == "read" and decode["interval"][0] < decode["tokens_per_second"], f"decode {decode}")
    k3 = ["--hardware", "cpu", "--model", "kimi-k3", "--format", "mxfp4", "--max-num-seqs", 4,
          "--max-model-len", 131072]
    small = json.loads(run("fit", *k3, "--cpu", "xeon-8592-2s", "--json", code=1))
    check(small["verdict"] == "does not fit" and small["need_bytes"] > 1.56e12, "K3 does not fit 1 TB")
    large = json.loads(run("fit", *k3, "--cpu", "epyc-9755-2s", "--json"))
    check(large["verdict"] == "fits", "K3 fits 2.3 TB")
    given = ["--cores", 64, "--ghz", 2.5, "--flops-per-cycle", 64, "--bandwidth-gb-s", 400, "--memory-gb", 512]
    run("fit", *linear, "--max-model-len", 32768, *given)
    run("fit", *linear, "--max-model-len", 32768, code=2)
    run("fit", *linear, "--max-model-len", 32768, "--cpu", "none", code=2)
    run("fit", *linear[:4], "--format", "w4a8", "--max-num-seqs", 8, "--max-model-len", 32768, *given, code=2)
    here = json.loads(run("fit", *linear, "--max-model-len", 4096, "--cpu", "this", "--json", code=(0, 1)))
    check(here["server"]["memory_gb_s"]["value"] > 0.1, "this machine's bandwidth is measured")


def simulate_and_search():
    plan = DATA / "plans" / "k3-eight-nodes.yaml"
    first = run("simulate", plan, *TRAFFIC, "--seed", 7, "--json")
    check(first == run("simulate", plan, *TRAFFIC, "--seed", 7, "--json"), "the same seed gives the same bytes")
    check(json.loads(first)["completed"] == 64, "all requests end")
    run("simulate", plan, "--prompts", 10, code=2)
    run("simulate", plan.parent / "none.yaml", *TRAFFIC, code=2)
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "plan.yaml"
        found = json.loads(run("search", "--nodes", 8, "--max-model-len", 133120, "--prompts", 48, "--input", 8192,
                               "--output", 512, "--concurrency", 32, "--pd-only", "--write", out, "--json"))
        best = found["ranked"][0] if "ranked" in found else found["layouts"][0]
        check("4" in json.dumps(best), "a layout is found")
        check("pools" in out.read_text(), "a plan is written")
        # A found plan has no addresses yet; the plans of the tests have.
        run("emit", out, "--out", pathlib.Path(folder) / "none", code=(1, 2))
        emitted = pathlib.Path(folder) / "out"
        listing = run("emit", plan, "--out", emitted).split()
        check(len(listing) > 20 and any(path.endswith("kubernetes/front.yaml") for path in listing),
              f"emitted {listing}")
        started = [path for path in listing if "/nodes/" in path or path.endswith("proxy.sh")]
        run("check", "--engine", "vllm-ascend", "--engine-version", "0.30.0rc2", "--chip", "a3",
            "--devices-per-node", 16, *started)
        run("emit", plan, "--out", "/proc/none", code=(1, 2))


def validation():
    report = json.loads(run("validate", "--json"))
    rows = report["time"]["values"]
    check(len(rows) > 40, "rows of the validation table")
    text = run("validate")
    for words in ("held out", "fitted", "null predictor", "covered", "interval", "0 wrong"):
        check(words in text, f"the table says '{words}'")
    held = {line["name"]: line for line in report["time"]["summary"]}
    check(held["held out"]["median"] <= 0.15, f"held-out median {held['held out']}")
    for node in ("atlas-800-a3", "atlas-900-a3-superpod", "ascend-950dt-node"):
        check("perigee plan emit" in run("guide", node), f"the guide of {node} names the emitter")
    run("guide", "none", code=2)


def check_reports():
    cases = DATA / "preflight"
    faulty = cases / "additional-config-typo" / "node0.sh"
    context = ["--engine", "vllm-ascend", "--engine-version", "0.30.0rc2", "--chip", "a3", "--devices-per-node", 16]
    report = json.loads(run("check", faulty, *context, "--json", code=1))
    finding = next(f for f in report["findings"] if f["rule"] == "8.28")
    check(finding["line"] == 16 and finding["fix"] and finding["source"], f"finding {finding}")
    run("check", *sorted((cases / "clean-k3-a3-four-nodes").glob("*.sh")), *context)
    run("check", code=2)
    run("check", cases / "none.sh", code=2)
    run("check", cases, code=2)
    sarif = json.loads(run("check", faulty, *context, "--sarif", code=1))
    check(sarif["version"] == "2.1.0" and sarif["$schema"].startswith("https://"), "SARIF version and schema")
    for one in sarif["runs"]:
        rules = {rule["id"] for rule in one["tool"]["driver"]["rules"]}
        check(bool(one["tool"]["driver"]["name"]) and bool(one["results"]), "SARIF driver and results")
        for result in one["results"]:
            check(result["ruleId"] in rules, f"SARIF rule {result['ruleId']} is declared")
            check(result["level"] in ("none", "note", "warning", "error"), f"SARIF level {result['level']}")
            check(bool(result["message"]["text"]), "SARIF message")
            for location in result["locations"]:
                place = location["physicalLocation"]
                uri = place["artifactLocation"]["uri"]
                check(re.fullmatch(r"[^\s\\]+", uri) is not None, f"SARIF uri {uri}")
                check(place["region"]["startLine"] >= 1, "SARIF line")
    for name, folder in (("given", cases), ("own", DATA / "preflight-own"),
                         ("blind", DATA / "preflight-blind")):
        text = run("check", "--cases", folder)
        check(re.search(r"certain +expected +(\d+) +found +\1 +missed +0", text) is not None, f"{name} cases\n{text}")
        check("false alarms in them 0" in text, f"{name} clean cases\n{text}")


def hostile():
    deep = 100_000
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12))
    files = {
        "deep-list.yaml": "[" * deep,
        "deep-map.yaml": "{a: " * deep,
        "deep-block.yaml": "".join(" " * i + "a:\n" for i in range(2000)),
        "bomb.yaml": bomb,
        "cycle.yaml": "a: &a\n  b: *a\nservices: *a\n",
        "aliases.yaml": "a: &a x\nb: [" + ", ".join(["*a"] * 200_000) + "]\n",
        "deep.json": "[" * deep,
        "keys.json": "{" + ",".join(f'"k{i}":0' for i in range(300_000)) + "}",
        "escapes.json": '"' + "\\u0000" * 100_000 + '"',
        "deep.sh": "$(" * deep,
        "deep-braces.sh": "echo " + "${a:-" * deep,
        "deep-if.sh": "if true; then\n" * deep,
        "deep-groups.sh": "(" * deep,
        "deep-quotes.sh": "vllm serve \"$(\"$(" * 20_000,
        "endless-loop.sh": "for i in $(seq 1 1000000000); do vllm serve m --port $i; done\n",
        "nested-loops.sh": "for a in {1..999}; do " * 8 + "vllm serve m" + "; done" * 8 + "\n",
        "doubling.sh": "a=xxxxxxxxxxxxxxxx\n" + "a=$a$a\n" * 60 + "vllm serve $a\n",
        "recursion.sh": "f() { f; f; }\nf\n",
        "source-itself.sh": "source source-itself.sh\nvllm serve m\n",
        "arithmetic.sh": "echo $((" + "(" * deep + "1" + "))\n",
        "braces.sh": "echo " + "{a,b}" * 64 + "\n",
        "heredocs.sh": "cat <<A\n" * 20_000,
        "flags.sh": "vllm serve m " + " ".join(f"--flag-{i} {i}" for i in range(50_000)) + "\n",
        "launches.sh": "vllm serve m --tensor-parallel-size 8 &\n" * 20_000,
        "inner.sh": "bash -c '" * 2000,
    }
    binary = {
        "binary.sh": bytes(range(256)) * 512,
        "nul.yaml": b"a: \x00\n",
        "latin.json": b'{"a": "\xff\xfe"}',
        "mark.sh": b"\xef\xbb\xbf#!/bin/bash\nvllm serve m\n",
        "unknown.sh": b"vllm serve m --port \x01\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, text in {**files, **binary}.items():
            path = folder / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            out = run("check", path, "--json", code=(0, 1, 2), seconds=HOSTILE_SECONDS)
            if out.strip():
                check(isinstance(json.loads(out)["findings"], list), f"{name}: JSON")
        huge = folder / "huge.sh"
        with open(huge, "wb") as file:
            file.truncate(100 << 20)
        run("check", huge, code=2, seconds=HOSTILE_SECONDS)
        # The same as plans and as traces.
        for name in ("deep-list.yaml", "deep-map.yaml", "deep-block.yaml", "bomb.yaml", "cycle.yaml", "aliases.yaml",
                     "binary.sh", "nul.yaml", "huge.sh"):
            run("emit", folder / name, "--out", folder / "none", code=(1, 2), seconds=HOSTILE_SECONDS)
            check(not (folder / "none").exists(), f"{name}: nothing is written")
        plan = DATA / "plans" / "k3-four-nodes.yaml"
        for name in ("deep.json", "binary.sh", "keys.json"):
            run("simulate", plan, "--trace", folder / name, code=(1, 2), seconds=HOSTILE_SECONDS)
        # An error of a plan names file and line.
        wrong = folder / "wrong.yaml"
        wrong.write_text(plan.read_text().replace("max_sequences:", "max_sequenzes:", 1))
        done = subprocess.run([PROGRAM, "plan", "fit", str(wrong)], capture_output=True, text=True)
        check(done.returncode == 2 and re.search(r"wrong\.yaml:\d+", done.stderr) is not None, f"plan: {done.stderr}")
        for text in ('{"format": "1", "cases": []}', '{"format": 1, "cases": [3]}', '{"format": 1, "cases": {"a": 1}}',
                     '{"format": 1, "cases": [{"id": 3}]}', '{"format": 1, "cases": [{"id": "x", "files": 1}]}', "["):
            (folder / "cases.json").write_text(text)
            run("check", "--cases", folder, code=2)


def main():
    for part in (fit_and_speed, cpu_servers, simulate_and_search, validation, check_reports, hostile):
        part()
    print(f"{len(FAILURES)} failures")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
