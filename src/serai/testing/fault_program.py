"""The program behind `serai.testing.faults`: a peer with one bad habit. Standard library only; see there for what each does."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

FRAME = b'{"jsonrpc":"2.0","method":"log","params":{"n":%d}}\n'


class Peer:
    """Answers calls on stdin and stdout until its habit gets the better of it."""

    def __init__(self, fault: str, options: dict[str, Any]) -> None:
        self.options = options
        self.habit: Callable[[Peer, bytes], None] = HABITS[fault]
        self.answered = 0

    def run(self) -> None:
        if early := EARLY.get(self.habit.__name__):
            early(self)
        for line in self.options["prelude"]:
            self.write(line.encode() + b"\n")
        for line in sys.stdin.buffer:
            self.handle_line(line)
        if self.habit is stubborn:
            pause_forever()

    def handle_line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return
        if not isinstance(message, dict) or "id" not in message:
            return
        answer = self.options["reply"].replace("$id", json.dumps(message["id"])).encode() + b"\n"
        if self.answered < self.options["after"]:
            self.write(answer)
        else:
            self.habit(self, answer)
        self.answered += 1

    def write(self, data: bytes, to: int = 1) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(to, rest) :]


def pause_forever() -> None:
    while True:
        signal.pause()


def add_member(answer: bytes, member: bytes) -> bytes:
    """The answer with one more member in its last object."""
    body = answer.rstrip(b"}\n")
    return body + (b"" if body.endswith(b"{") else b",") + member + answer[len(body) :]


def none(peer: Peer, answer: bytes) -> None:
    peer.write(answer)


def silent(peer: Peer, answer: bytes) -> None:
    pass


def slow(peer: Peer, answer: bytes) -> None:
    time.sleep(peer.options["seconds"])
    peer.write(answer)


def chatty(peer: Peer, answer: bytes) -> None:
    chatter = b"chatter " * (peer.options["bytes"] // 8 + 1)
    peer.write(chatter[: peer.options["bytes"]], to=2)
    peer.write(answer)


def banner(peer: Peer, answer: bytes) -> None:
    peer.write(b"a log line, no frame\n" + answer)


def huge(peer: Peer, answer: bytes) -> None:
    filler = peer.options["bytes"] - len(add_member(answer, b'"pad":""'))
    peer.write(add_member(answer, b'"pad":"' + b"x" * filler + b'"'))


def half(peer: Peer, answer: bytes) -> None:
    peer.write(answer[: len(answer) // 2])
    os._exit(0)


def bad_utf8(peer: Peer, answer: bytes) -> None:
    peer.write(add_member(answer, b'"text":"caf\xe9 \xff\xfe"'))


def dies(peer: Peer, answer: bytes) -> None:
    os.write(2, b"fatal: the habit got the better of me\n")
    if peer.options["signal"]:
        os.kill(os.getpid(), peer.options["signal"])
        pause_forever()
    os._exit(peer.options["code"])


def stubborn(peer: Peer, answer: bytes) -> None:
    peer.write(answer)


def be_stubborn(peer: Peer) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def holder(peer: Peer, answer: bytes) -> None:
    if os.fork() == 0:
        os.close(0)
        note_pid(peer)
        pause_forever()
    wait_for_note(peer)
    peer.write(answer)
    os._exit(0)


def daemon(peer: Peer, answer: bytes) -> None:
    if os.fork() == 0:
        os.setsid()
        if peer.options["orphan"] and os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        if peer.options["clean"]:
            os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", NOTE, peer.options["pid_file"]], {})
        note_pid(peer)
        pause_forever()
    if peer.options["orphan"]:
        os.wait()
    wait_for_note(peer)
    peer.write(answer)


# What the daemon without an environment runs: the same as `note_pid` and `rest`.
NOTE = """
import os, signal, sys
if path := sys.argv[1]:
    with open(path + "~", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + "~", path)
while True:
    signal.pause()
"""


def wait_for_note(peer: Peer) -> None:
    while peer.options["pid_file"] and not os.path.exists(peer.options["pid_file"]):
        time.sleep(0.001)


def note_pid(peer: Peer) -> None:
    if path := peer.options["pid_file"]:
        with open(path + "~", "w") as file:
            file.write(str(os.getpid()))
        os.rename(path + "~", path)


def mute(peer: Peer, answer: bytes) -> None:
    os.close(1)
    pause_forever()


def deaf(peer: Peer, answer: bytes) -> None:
    pause_forever()


def unplugged(peer: Peer, answer: bytes) -> None:
    os.close(0)
    peer.write(answer)
    pause_forever()


def flood(peer: Peer, answer: bytes) -> None:
    sent = 0
    while not peer.options["frames"] or sent < peer.options["frames"]:
        batch = min(100, peer.options["frames"] - sent) if peer.options["frames"] else 100
        peer.write(b"".join(FRAME % (sent + n) for n in range(batch)))
        sent += batch
    peer.write(answer)


def twice(peer: Peer, answer: bytes) -> None:
    peer.write(answer + answer)


def stranger(peer: Peer, answer: bytes) -> None:
    strange = peer.options["reply"]
    peer.write(b"".join(strange.replace("$id", id).encode() + b"\n" for id in ("999999", '"nobody"', "1.5")) + answer)


def trickle(peer: Peer, answer: bytes) -> None:
    step = peer.options["bytes"]
    for start in range(0, len(answer), step):
        peer.write(answer[start : start + step])


def say_banner(peer: Peer) -> None:
    peer.write(b"Welcome to a program that likes to talk\n\n[1, 2]\n")


def be_deaf(peer: Peer) -> None:
    if peer.options["after"] == 0:
        for line in peer.options["prelude"]:
            peer.write(line.encode() + b"\n")
        pause_forever()


HABITS: dict[str, Callable[[Peer, bytes], None]] = {
    "none": none,
    "silent": silent,
    "slow": slow,
    "chatty": chatty,
    "banner": banner,
    "huge": huge,
    "half": half,
    "bad-utf8": bad_utf8,
    "dies": dies,
    "stubborn": stubborn,
    "holder": holder,
    "daemon": daemon,
    "mute": mute,
    "deaf": deaf,
    "unplugged": unplugged,
    "flood": flood,
    "twice": twice,
    "stranger": stranger,
    "trickle": trickle,
}

# Habits that show before the first call.
EARLY: dict[str, Callable[[Peer], None]] = {"banner": say_banner, "stubborn": be_stubborn, "deaf": be_deaf}

if __name__ == "__main__":
    Peer(sys.argv[1], json.loads(sys.argv[2])).run()
