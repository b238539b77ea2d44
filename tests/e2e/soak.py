#!/usr/bin/env python3
"""Soak of `perigee serve`: many mixed requests with clients that leave and clients that read slowly. Each reply must equal
the reply of a server that runs one request at a time, on one thread, without a prefix cache; memory must stay flat.

soak.py PERIGEE CONFIG_FOLDER WORK_FOLDER [--requests N] [--distinct N] [--concurrency N] [--no-memory-bound]
"""
import argparse
import asyncio
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time


class Failure(Exception):
    pass


class Server:
    """`perigee serve` on a free port."""

    def __init__(self, perigee, model, log, arguments):
        self.log = open(log, "wb")
        self.process = subprocess.Popen(
            [perigee, "serve", model, "--port", "0", "--quiet", "--alias", "soak", *arguments],
            stdout=self.log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        pattern = re.compile(rb"listening on http://127\.0\.0\.1:(\d+)")
        while True:
            text = pathlib.Path(log).read_bytes()
            if (match := pattern.search(text)) and b"ready" in text:
                self.port = int(match[1])
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server did not start: {text.decode(errors='replace')}")
            time.sleep(0.05)

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.log.close()
        if code != 0:
            raise Failure(f"SIGTERM ends the server with exit code 0, found {code}")


def make_requests(count, seed):
    """Bodies whose prompts share beginnings, so that the cache is hit, branched and evicted."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz      "
    text = lambda n: "".join(rng.choice(letters) for _ in range(n))
    stories = [text(1500) for _ in range(8)]
    systems = [text(300) for _ in range(3)]
    bodies = []
    for _ in range(count):
        story = rng.choice(stories)
        sampling = {"model": "soak", "seed": rng.randrange(1 << 30), "max_tokens": rng.randrange(2, 24),
                    "temperature": rng.choice([0, 0.7, 1.0]), "top_p": rng.choice([0.9, 1.0]), "n": rng.choice([1, 1, 1, 2])}
        if rng.random() < 0.5:
            prompt = story[: rng.randrange(1, 1200)] + text(rng.randrange(0, 80))
            bodies.append(("/v1/completions", {**sampling, "prompt": prompt, "logprobs": 1}))
        else:
            messages = [{"role": "system", "content": rng.choice(systems)}]
            for turn in range(rng.randrange(1, 4)):
                messages += [{"role": "user", "content": story[150 * turn : 150 * (turn + 1)]},
                             {"role": "assistant", "content": text(20)}]
            messages[-1] = {"role": "user", "content": text(rng.randrange(1, 60))}
            bodies.append(("/v1/chat/completions", {**sampling, "messages": messages, "logprobs": True, "top_logprobs": 1}))
    return bodies


async def send(port, path, body, receive_buffer=None):
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 12)
    data = json.dumps(body).encode()
    writer.write(f"POST {path} HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    await writer.drain()
    return reader, writer


def body_of(raw):
    head, _, rest = raw.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if b"chunked" in head.lower():
        out = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            if length == 0:
                break
            out += rest[:length]
            rest = rest[length + 2 :]
        rest = out
    if status != 200:
        raise Failure(f"status {status}: {rest[:500]!r}")
    return rest


def merge(into, choice):
    """Adds one streamed choice to what a whole reply would hold."""
    slot = into.setdefault(choice["index"], {"text": "", "reasoning": "", "logprobs": [], "finish": None})
    delta = choice.get("delta") or choice.get("message") or {}
    slot["text"] += choice.get("text") or delta.get("content") or ""
    slot["reasoning"] += delta.get("reasoning_content") or ""
    logprobs = choice.get("logprobs") or {}
    slot["logprobs"] += [entry["logprob"] for entry in logprobs.get("content") or []] + (logprobs.get("token_logprobs") or [])
    slot["finish"] = choice.get("finish_reason") or slot["finish"]


def reply_of(raw, stream):
    body = body_of(raw)
    choices = {}
    if not stream:
        for choice in json.loads(body)["choices"]:
            merge(choices, choice)
        return choices
    done = False
    for line in body.split(b"\n"):
        if line.startswith(b"data: "):
            if line == b"data: [DONE]":
                done = True
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise Failure(f"an error event: {event}")
            for choice in event["choices"]:
                merge(choices, choice)
    if not done:
        raise Failure("a stream without [DONE]")
    for slot in choices.values():
        # An answer that never left its reasoning is delivered as content; a stream has sent it as reasoning before.
        if slot["reasoning"] == slot["text"]:
            slot["reasoning"] = ""
    return choices


async def exchange(port, request, stream, slow=None):
    path, body = request
    reader, writer = await send(port, path, {**body, "stream": stream}, 2048 if slow else None)
    raw = b""
    try:
        while True:
            piece = await reader.read(256 if slow else 1 << 16)
            if not piece:
                break
            raw += piece
            if slow:
                await asyncio.sleep(slow)
    finally:
        writer.close()
    return reply_of(raw, stream)


async def leave(port, request, after):
    """A client that goes away in the middle."""
    path, body = request
    _, writer = await send(port, path, {**body, "stream": True, "max_tokens": 400})
    await asyncio.sleep(after)
    writer.transport.abort()


async def soak(server, requests, expected, count, concurrency, seed):
    rng = random.Random(seed)
    remaining = count
    kinds = {"whole": 0, "stream": 0, "slow": 0, "left": 0}
    memory = []
    failures = []

    async def worker():
        nonlocal remaining
        while remaining > 0 and not failures:
            remaining -= 1
            if remaining % max(1, count // 200) == 0:
                memory.append(server.resident_kib())
            index = rng.randrange(len(requests))
            kind = rng.choices(list(kinds), [35, 35, 15, 15])[0]
            kinds[kind] += 1
            if kind == "left":
                await leave(server.port, requests[index], rng.choice([0, 0.001, 0.01, 0.05]))
                continue
            slow = rng.choice([0.002, 0.02]) if kind == "slow" else None
            reply = await exchange(server.port, requests[index], kind != "whole", slow)
            if reply != expected[index]:
                failures.append((index, kind, expected[index], reply))

    await asyncio.gather(*(worker() for _ in range(concurrency)))
    return kinds, memory, failures


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("perigee")
    parser.add_argument("config")
    parser.add_argument("work")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--distinct", type=int, default=60)
    parser.add_argument("--concurrency", type=int, default=24)
    # A sanitizer keeps freed memory and shadows the rest.
    parser.add_argument("--no-memory-bound", action="store_true")
    arguments = parser.parse_args()
    work = pathlib.Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    model = str(work / "model")
    if not os.path.isdir(model):
        subprocess.run([arguments.perigee, "synth", arguments.config, model], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
    requests = make_requests(arguments.distinct, 1)

    solo = Server(arguments.perigee, model, work / "solo.log",
                  ["--memory", "512M", "--no-cache", "--threads", "1", "--max-branches", "2"])
    expected = [await exchange(solo.port, request, stream=False) for request in requests]
    solo.stop()

    # Too little memory for all histories, so that states and pages are evicted all the time.
    server = Server(arguments.perigee, model, work / "server.log", ["--memory", "192M", "--cache-audit", "0.05"])
    start = time.monotonic()
    kinds, memory, failures = await soak(server, requests, expected, arguments.requests, arguments.concurrency, 2)
    seconds = time.monotonic() - start
    server.stop()

    if failures:
        index, kind, want, got = failures[0]
        raise Failure(f"request {index} ({kind}) differs from its solo reply:\n{json.dumps(requests[index])}\n"
                         f"expected {json.dumps(want)}\nfound    {json.dumps(got)}")
    half = memory[len(memory) // 2 :]
    growth = max(half) / max(memory[: len(memory) // 2])
    print(f"{arguments.requests} requests in {seconds:.0f} s: {kinds}; every reply equals its solo reply; resident "
          f"{memory[0]} KiB at the start, at most {max(memory[: len(memory) // 2])} in the first half, {max(half)} in the second "
          f"({growth:.3f}x)")
    if arguments.no_memory_bound:
        return
    # Everything that is resident: program, libraries, sockets and all.
    if max(memory) > 192 * 1024:
        raise Failure(f"expected at most the 192 MiB of --memory, found {max(memory)} KiB")
    # A short run still fills its caches in the second half.
    if arguments.requests >= 5000 and growth > 1.02:
        raise Failure(f"memory grew {growth:.3f}x from the first half of the run to the second")


try:
    asyncio.run(main())
except Failure as failure:
    raise SystemExit(f"FAILED: {failure}")
