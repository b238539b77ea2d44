#!/usr/bin/env python3
"""Runs the official clients against a server with scripted answers, on loopback.

usage: run_clients.py SERVER_PROGRAM CACHE_DIR [--no-install]

A virtual environment and node_modules are made in CACHE_DIR once and kept. Exits 0 when all checks passed, 77 when
nothing could be run (with the reason), 1 otherwise.
"""
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
KEY = "test-key-0123456789"


def stamp_is(path, text):
    return path.exists() and path.read_text() == text


def python_environment(cache, install):
    requirements = HERE / "requirements.txt"
    stamp = hashlib.sha256(requirements.read_bytes()).hexdigest()
    venv = cache / "venv"
    if not stamp_is(venv / "stamp", stamp):
        if not install:
            return None, "the Python clients are not installed"
        made = subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True)
        if made.returncode != 0:
            return None, "python3-venv is missing"
        done = subprocess.run([str(venv / "bin/pip"), "install", "-q", "--disable-pip-version-check", "-r",
                               str(requirements)])
        if done.returncode != 0:
            return None, "pip could not install requirements.txt"
        (venv / "stamp").write_text(stamp)
    return venv / "bin/python", None


def node_environment(cache, install):
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None, "node or npm is missing"
    package = HERE / "package.json"
    stamp = hashlib.sha256(package.read_bytes()).hexdigest()
    folder = cache / "node"
    if not stamp_is(folder / "stamp", stamp):
        if not install:
            return None, "the Node clients are not installed"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(package, folder / "package.json")
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"], cwd=folder)
        if done.returncode != 0:
            return None, "npm could not install package.json"
        (folder / "stamp").write_text(stamp)
    # Modules are found beside the script that imports them.
    shutil.copy(HERE / "clients_test.mjs", folder / "clients_test.mjs")
    return folder, None


class Server:
    """The scripted server on a free port; stopped, and its exit checked, at the end."""

    def __init__(self, program, *arguments, script=HERE / "script.json"):
        self.process = subprocess.Popen([program, "--script", str(script), *arguments],
                                        stderr=subprocess.PIPE, text=True)
        self.base = None
        for line in self.process.stderr:
            if line.startswith("listening on "):
                self.base = line.split()[-1]
            if line.startswith("ready"):
                break
        if self.base is None:
            raise RuntimeError("the server did not start")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        code = self.process.wait(timeout=15)
        return code == 0 and time.monotonic() - began < 10


def main():
    program, cache = sys.argv[1], pathlib.Path(sys.argv[2])
    install = "--no-install" not in sys.argv
    cache.mkdir(parents=True, exist_ok=True)
    python, no_python = python_environment(cache, install)
    node, no_node = node_environment(cache, install)
    for reason in (no_python, no_node):
        if reason:
            print(f"skipped: {reason}")
    if not python and not node:
        return 77
    server = Server(program, "--api-key", KEY)
    # Nothing may leave this machine, whatever a proxy variable says.
    environment = {**os.environ, "NO_PROXY": "*", "no_proxy": "*"}
    failed = False
    try:
        if python:
            failed |= subprocess.run([str(python), str(HERE / "clients_test.py"), server.base, KEY], env=environment,
                                     timeout=900).returncode != 0
        if node:
            failed |= subprocess.run(["node", "clients_test.mjs", server.base, KEY], cwd=node, env=environment,
                                     timeout=600).returncode != 0
    finally:
        clean = server.stop()
    if not clean:
        print("FAIL  the server did not stop cleanly on SIGTERM")
    return 1 if failed or not clean else 0


if __name__ == "__main__":
    sys.exit(main())
