"""What a hook hands over is on no record and in no log."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest

from serai.record import Recorder, Secrets
from tests.support.boxes.hook_scripts import BOX, PATIENT, Hooks, hooks
from tests.support.recordings import open_folder, open_recording, read_all_bytes

__all__ = ["hooks"]

STATE = "state-hunter2"
CONTENT = "content-hunter2"
BINARY = "binary-hunter2"
MINTS = f"""
printf '%s' '{{"state":"{STATE}","files":[{{"path":"/a","content":"{CONTENT}"}},'
printf '%s' '{{"path":"/b","content_base64":"{base64.b64encode(BINARY.encode()).decode()}","mode":"0400"}}]}}'
"""


@pytest.mark.req("hooks.rule.1.10-stderr-on-success")
async def test_the_stderr_of_a_good_hook_is_logged_for_debugging_without_what_it_handed_over(
    hooks: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    said = f"minted {STATE} into {CONTENT} and {BINARY} with sk-ant-0123456789abcdef0123"
    path = hooks.sh("hook", f"{MINTS}\necho begin >&2; head -c 20000 /dev/zero | tr '\\0' x >&2; echo '{said}' >&2")
    with caplog.at_level(logging.DEBUG, "serai.boxes"):
        assert (await hooks.create(path)).error is None
    [record] = caplog.records
    assert record.levelname == "DEBUG"
    text = record.getMessage()
    assert "minted ************* into" in text
    assert "hunter2" not in text
    assert "sk-ant" not in text
    assert "begin" not in text
    assert len(text.encode()) < 8192 + 200
    caplog.clear()
    with caplog.at_level(logging.INFO, "serai.boxes"):
        assert (await hooks.create(path)).error is None
    assert not caplog.records


@pytest.mark.req("hooks.naive.31")
async def test_nothing_that_a_life_of_hooks_logs_holds_a_secret(hooks: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    good = hooks.sh("good", MINTS)
    bad = hooks.sh("bad", f"cat; printf '%s' '{{\"state\":\"{STATE}\"}}'")
    with caplog.at_level(logging.DEBUG):
        outcome = await hooks.create(good, bad)
        assert outcome.error is not None
        await hooks.runner(bad).destroy(BOX, {bad: STATE})
        await hooks.runner().recover(str(hooks.answers / "answer"), ["key"])
    assert "decoding response" in caplog.text
    assert "hunter2" not in caplog.text + str(outcome.error)


async def test_a_run_is_on_record_with_stars_of_the_same_length(hooks: Hooks, tmp_path: Path) -> None:
    path = hooks.sh("hook", f"{MINTS}\necho 'told {STATE} and {CONTENT}' >&2")
    folder = open_folder(tmp_path)
    with Recorder(folder, secrets=Secrets()) as recorder:
        runner = hooks.runner(path, recorder=recorder)
        outcome = await runner.create(BOX, str(hooks.answers / "answer"), hooks.on_state)
        assert outcome.states == {path: STATE}
        assert await runner.destroy(BOX, outcome.states) is None
        recorder.open_tap("zot:other", kind="guest", dialect="zot").frames(
            "received", 0.0, f'{{"text":"{CONTENT} {BINARY}"}}\n'.encode()
        )
    everything = read_all_bytes(folder)
    assert b"hunter2" not in everything
    assert base64.b64encode(BINARY.encode())[:-4] not in everything
    with open_recording(folder) as recording:
        wires = [wire for wire in recording.wires.values() if wire.kind == "hook"]
        assert [(wire.who, wire.dialect, wire.framing, wire.pid > 0, str(wire.exit)) for wire in wires] == [
            (f"hook:{path}", "hookproto", "bodies", True, "exit status 0")
        ] * 2
    stars = ["*" * len(text) for text in (STATE, CONTENT, base64.b64encode(BINARY.encode()).decode())]
    files = f'{{"path":"/a","content":"{stars[1]}"}},{{"path":"/b","content_base64":"{stars[2]}","mode":"0400"}}'
    assert f'{{"files":[{files}],"state":"{stars[0]}"}}\n'.encode() in everything
    assert b'{"event":"box.create","box":{"box_id":"a","description":"mine"}}\n' in everything
    assert f'{{"event":"box.destroy","box":{{"box_id":"a","description":"mine"}},"state":"{stars[0]}"}}\n'.encode() in everything


async def test_of_what_is_no_response_only_the_size_is_on_record(hooks: Hooks, tmp_path: Path) -> None:
    garbage = hooks.sh("garbage", f"printf 'oops {STATE}'")
    late = hooks.sh("late", f"printf 'oops {STATE}'; exec sleep 1000")
    folder = open_folder(tmp_path)
    with Recorder(folder, secrets=Secrets()) as recorder:
        for path, limits in ((garbage, PATIENT), (late, PATIENT.but(hook_timeout=1.2)), ("/nowhere/hook", PATIENT)):
            runner = hooks.runner(path, recorder=recorder, limits=limits)
            assert (await runner.create(BOX, str(hooks.answers / "answer"), hooks.on_state)).error is not None
    everything = read_all_bytes(folder)
    assert b"hunter2" not in everything
    assert b'"18 bytes that are no response"' in everything
    with open_recording(folder) as recording:
        assert [wire.why.partition(":")[0] for wire in recording.wires.values()] == [
            "decoding response",
            "timed out after 1.2s",
            "fork/exec /nowhere/hook",
        ]
