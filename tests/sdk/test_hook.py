"""A hook written with the SDK, as a real program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.fresh_interpreters import SOURCE, list_imports

PROGRAM = "import sys; sys.path.insert(0, {source!r})\nfrom serai.sdk.hook import *\n{body}\nmain(handle)\n"


def hook(body: str, request: bytes = b'{"event":"box.create","box":{"box_id":"a"}}') -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM.format(source=SOURCE, body=body)]
    return subprocess.run(argv, input=request, env={}, capture_output=True, check=False, timeout=30)


@pytest.mark.req("hooks.rule.1.13-main")
def test_main_answers_and_exits_0() -> None:
    ran = hook("def handle(request): return Response([File('/id', content=request.box.box_id)], state=request.event)")
    assert ran.stdout == b'{"files":[{"path":"/id","content":"a"}],"state":"box.create"}\n'
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.req("hooks.rule.1.13-main")
@pytest.mark.parametrize(
    ("body", "request_", "stderr"),
    [
        ("def handle(request): raise ValueError('no such vault')", b"{}", b"hook: no such vault\n"),
        ("def handle(request): assert request.state", b"{}", b"hook: AssertionError\n"),
        (
            "def handle(request): return {}",
            b"{}",
            b"hook: encoding hook response: the handler returned dict, not a Response or None\n",
        ),
        ("def handle(request): return None", b"", b"hook: decoding hook request: unexpected end of JSON input\n"),
    ],
)
def test_main_tells_an_error_on_stderr_and_exits_1(body: str, request_: bytes, stderr: bytes) -> None:
    ran = hook(body, request_)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, b"", stderr)


def test_what_is_printed_does_not_spoil_the_answer_whoever_prints_it() -> None:
    body = """
import os, subprocess
print("before")
def handle(request):
    print("inside"); os.write(1, b"below\\n"); subprocess.run(["/bin/echo", "beside"])
"""
    ran = hook(body)
    assert (ran.returncode, ran.stdout) == (0, b"{}\n")
    assert sorted(ran.stderr.splitlines()) == [b"before", b"below", b"beside", b"inside"]


def test_a_handler_may_end_the_program_itself() -> None:
    ran = hook("def handle(request): raise SystemExit(3)")
    assert (ran.returncode, ran.stdout) == (3, b"")


def test_without_its_streams_it_fails_and_says_so() -> None:
    program = PROGRAM.format(source=SOURCE, body="def handle(request): return None")
    argv = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-I", "-S", "-c", program]
    ran = subprocess.run(argv, env={}, capture_output=True, check=False, timeout=30)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr.startswith(b"hook: ")
    assert os.strerror(9).encode() in ran.stderr


@pytest.mark.req("hooks.rule.1.13-main")
@pytest.mark.parametrize("size", [1, 1_000_000])
@pytest.mark.parametrize("stdout", ["a full disk", "a closed pipe"])
def test_an_answer_that_cannot_be_written_is_told(stdout: str, size: int) -> None:
    program = PROGRAM.format(source=SOURCE, body=f"def handle(request): return Response(state='x' * {size})")
    if stdout == "a full disk":
        answer, why = os.open("/dev/full", os.O_WRONLY), 28
    else:
        reader, answer = os.pipe()
        os.close(reader)
        why = 32
    try:
        argv = [sys.executable, "-I", "-S", "-c", program]
        ran = subprocess.run(argv, input=b"{}", env={}, stdout=answer, stderr=subprocess.PIPE, check=False, timeout=30)
    finally:
        os.close(answer)
    told = f"hook: encoding hook response: [Errno {why}] {os.strerror(why)}\n"
    assert (ran.returncode, ran.stderr.decode()) == (1, told)


def test_a_hook_loads_hardly_more_than_json() -> None:
    """It starts for each box, and the box waits for it."""
    loaded = list_imports("serai.sdk.hook")
    assert "serai.dialects.hookproto.peer_side" in loaded
    assert not loaded & {"asyncio", "base64", "dataclasses", "inspect", "msgspec", "typing", "serai.dialects.hookproto.host_side"}
    beyond = {name for name in loaded - list_imports("json") if not name.startswith("serai")}
    assert beyond <= {"binascii", "__future__"}
