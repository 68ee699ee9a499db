"""One source under two dialects (examples/both), and what is left out where a dialect cannot carry it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serai.testing.zot_host import ZotHost
from tests.support.sdk.piglet_programs import Driven
from tests.support.sdk.zot_programs import write_program

NOTES = Path(__file__).parents[2] / "examples" / "both" / "notes"
OURS = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return Path(shutil.copytree(NOTES, tmp_path / "notes"))


@pytest.mark.req("sdk.life.dialect")
def test_the_example_runs_under_zot_and_says_once_what_is_left_out(notes: Path) -> None:
    with ZotHost(notes, environ=OURS) as host:
        assert host.call_text("note", {"text": "Bern has bears"}) == "kept, 1 in all"
        wrong = host.call_tool("note", {"text": "a\nb"})["content"][0]["text"]
        assert wrong == "[error:INVALID_ARGS] a note is one line\nhint: keep several, one each"
        assert host.answer(host.ask("command_invoked", name="notes", args=""))["display"] == "Bern has bears"
        digest = host.answer(host.ask("command_invoked", name="digest", args=""))
        assert digest["prompt"].endswith("Bern has bears")
        judged = host.ask(
            "event_intercept", event="tool_call", tool_id="1", tool_name="bash", tool_args={"command": "rm notes.txt"}
        )
        assert host.answer(judged)["block"]
        assert host.shutdown() == 0
        assert host.stderr.splitlines() == [
            "[notes] the host speaks zot: it has no prompt sections: 1 is left out",
            "[notes] the host speaks zot: it has no event handlers: 1 is left out",
            "[notes] the host speaks zot: it has no message hooks: 1 is left out",
        ]


@pytest.mark.req("sdk.life.dialect")
@pytest.mark.parametrize("fd", [True, False])
def test_the_same_example_runs_under_piglet_with_all_it_has(notes: Path, tmp_path: Path, fd: bool) -> None:
    environ = {} if fd else {"SERAI_DIALECT": "piglet"}
    with Driven(notes, fd=fd, file="notes.py", environ=environ) as host:
        kinds = [one["method"].removeprefix("register/") for one in host.begin(configDir=str(tmp_path / "config" / "notes"))]
        expected = ["promptSection", "tool", "command", "command", "interceptor", "messageHook", "eventHandler"]
        assert kinds == expected
        assert host.text("note", text="Bern has bears") == "kept, 1 in all"
        assert host.call("messageHook/onMessage", message="What of Bern") == {"injection": "From the notes:\nBern has bears"}
        action = host.call("event/dispatch", type="EventTurnEnd", data={})["action"]
        assert action == {"type": "setStatus", "payload": {"key": "notes", "text": "1 notes"}}
        asked = host.ask("command/execute", {"name": "digest", "args": ""})
        assert host.serve("host/chat", {"text": "Bears."})["model"] == "small"
        assert host.answer(asked)["result"] == {}
        assert host.hear("showMessage")["params"] == {"text": "Bears."}
        before = host.call("interceptor/before", name="notes", toolName="bash", args={"command": "rm notes.txt"})
        assert before == {"allow": False, "preview": "the notes are changed with `note`"}
        assert host.end() == 0
        assert host.stderr == ""


def test_a_bundle_of_it_speaks_piglet_as_well(notes: Path, tmp_path: Path) -> None:
    serai = [sys.executable, "-m", "serai", "guest", "bundle", str(notes), "-o", str(tmp_path / "notes.pyz")]
    subprocess.run(serai, check=True, capture_output=True, timeout=50, env=OURS | {"SERAI_HOME": str(tmp_path)})
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(tmp_path / "notes.pyz", bare)
    with Driven(bare, file="notes.pyz") as host:
        assert len(host.begin(configDir=str(tmp_path / "config"))) == 7
        assert host.text("note", text="x") == "kept, 1 in all"
        assert host.end() == 0


def test_under_zot_what_comes_late_is_told_and_guards_are_asked_one_after_the_other(tmp_path: Path) -> None:
    body = """
@ext.intercept("tool_call", name="second", priority=1)
async def second(call): return Rewrite({"seen": [*call.args["seen"], "second"]})

@ext.intercept("tool_call", name="first", priority=2)
def first(call): return Block("enough") if len(call.args["seen"]) > 1 else Rewrite({"seen": [*call.args["seen"], "first"]})

@ext.after()
def after(done): ...

started = []

@ext.on_init
def start():
    started.append(str(ext.cwd))

@ext.tool
def more() -> str:
    ext.tool("late", schema={})(lambda: "late")
    return str((started, hasattr(ext.host, "chat"), hasattr(ext.host, "steer")))
"""
    with ZotHost(write_program(tmp_path, body)) as host:
        assert host.call_text("more", {}).endswith("], False, False)")

        def judged(*seen: str) -> object:
            members = {"event": "tool_call", "tool_id": "1", "tool_name": "t", "tool_args": {"seen": seen}}
            answer = host.answer(host.ask("event_intercept", **members))
            return answer.get("reason") or answer["modified_args"]

        assert judged("x") == {"seen": ["x", "first", "second"]}
        assert judged("x", "y") == "enough"
        assert host.shutdown() == 0
        assert host.stderr.splitlines() == [
            "[probe] the host speaks zot: it shows nobody what came of a tool call, so `after` is never called",
            "[probe] the tool late is not offered: zot takes nothing more once it is ready",
        ]
