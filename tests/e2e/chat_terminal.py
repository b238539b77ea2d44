#!/usr/bin/env python3
"""`perigee run` on a terminal: /help, an answer, Ctrl-C stops the answer and not the program, history, Ctrl-D.

chat_terminal.py PERIGEE
"""
import os
import pty
import re
import select
import signal
import sys
import time

PROMPT = b"\r\n> "
END = re.compile(rb"\[(\d+) tokens, .*?(\d+) of (\d+) prompt tokens cached(, stopped)?\]")


class Terminal:
    def __init__(self, arguments):
        self.process, self.fd = pty.fork()
        if self.process == 0:
            os.environ["TERM"] = "xterm"
            os.execv(arguments[0], arguments)
        self.screen = b""

    def until(self, wanted, seconds=60):
        """Text up to and with `wanted` (bytes or a pattern)."""
        pattern = wanted if isinstance(wanted, re.Pattern) else re.compile(re.escape(wanted))
        deadline = time.monotonic() + seconds
        while (match := pattern.search(self.screen)) is None:
            if time.monotonic() > deadline:
                raise SystemExit(f"expected {pattern.pattern!r} within {seconds} s, found {self.screen[-2000:]!r}")
            if select.select([self.fd], [], [], 0.2)[0]:
                self.screen += os.read(self.fd, 65536)
        text, self.screen = self.screen[: match.end()], self.screen[match.end() :]
        return text

    def type(self, line):
        os.write(self.fd, line)


def expect(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def main():
    terminal = Terminal([sys.argv[1], "run", "--memory", "2G", "--max-tokens", "400"])
    terminal.until(b"> ")

    terminal.type(b"/help\n")
    terminal.until(b"/reset")
    terminal.until(PROMPT)

    terminal.type(b"a first message\n")
    terminal.until(b"\x1b[2m")  # reasoning is dimmed
    time.sleep(0.3)
    terminal.type(b"\x03")
    first = END.search(terminal.until(END))
    expect(first[4] is not None, "Ctrl-C ends the answer with the word 'stopped'")
    expect(int(first[1]) < 400, "Ctrl-C stops before the limit")
    terminal.until(PROMPT)

    terminal.type(b"a second message\n")
    terminal.until(b"\x1b[2m")
    terminal.type(b"\x03")
    second = END.search(terminal.until(END))
    expect(int(second[3]) > int(first[3]) + int(first[1]), "the second prompt holds the first turn")
    expect(int(second[2]) > 0, "the second turn finds the first in the cache")
    terminal.until(PROMPT)

    terminal.type(b"/reset\n")
    terminal.until(PROMPT)
    terminal.type(b"a third message\n")
    terminal.until(b"\x1b[2m")
    terminal.type(b"\x03")
    third = END.search(terminal.until(END))
    expect(int(third[3]) < int(second[3]), "/reset forgets the conversation")
    terminal.until(PROMPT)

    # Typed while an answer runs, so in the other mode of the terminal.
    terminal.type(b"a last message\n")
    terminal.until(b"\x1b[2m")
    terminal.type(b"\x03\x04")
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(terminal.process, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(terminal.process, signal.SIGKILL)
            raise SystemExit(f"Ctrl-D does not leave within 60 s, found {terminal.screen[-2000:]!r}")
        if select.select([terminal.fd], [], [], 0.2)[0]:
            try:
                terminal.screen += os.read(terminal.fd, 65536)
            except OSError:  # the program closed the terminal
                time.sleep(0.2)
    status = ended[1]
    expect(status == 0, f"Ctrl-D leaves with exit code 0, found status {status}")


main()
