"""The suite of driven agents measures what it says: a stream answers one prompt, and who loses a piece of it gets no number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import stream
from bench.stream import Stream
from bench.suites import agents

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["talk", "turn"])
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Stream:
    monkeypatch.setattr(stream, "BUILD", tmp_path)
    monkeypatch.setattr(stream, "TURNS", 5)
    return stream.build(request.param)


def run(*command: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", *map(str, command)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_the_stream_answers_one_prompt(short: Stream) -> None:
    written = Path(short.path).read_bytes().splitlines(keepends=True)
    lines = [json.loads(line) for line in written]
    assert [line.get("subtype") for line in lines if line.get("subtype") in ("init", "success")] == ["init", "success"]
    deltas = [line for line in written if json.loads(line).get("event", {}).get("type") == "content_block_delta"]
    assert (short.events, short.pieces) == (len(lines), sum(map(len, deltas)))


def test_results_are_long_in_one_and_as_recorded_in_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BUILD", tmp_path)
    monkeypatch.setattr(stream, "TURNS", 100)
    longest = {}
    for name in ("talk", "turn"):
        lines = Path(stream.build(name).path).read_bytes().splitlines()
        longest[name] = [len(line) > 45_000 for line in lines if line.startswith(b'{"type":"user"')]
    assert all(longest["turn"])
    assert 0 < sum(longest["talk"]) < 10


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_session_gets_every_piece(short: Stream, loop: str) -> None:
    ran = run("bench.workers.claude", *short, loop)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout).keys() == {"per_second", "mb_s", "cpu_us", "peak_mb", "grown_mb"}


@pytest.mark.parametrize("lost", ["pieces", "text"])
def test_a_session_that_lost_something_gets_no_number(short: Stream, lost: str) -> None:
    ran = run("bench.workers.claude", *short._replace(**{lost: getattr(short, lost) + 1}), "asyncio")
    assert ran.returncode != 0
    assert "were sent" in ran.stderr
    assert ran.stdout == ""


def test_approvals_of_many_sessions_are_counted() -> None:
    ran = run("bench.workers.agents", "mock", 3, 2)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout).keys() == {"per_second", "cpu_us"}


def test_a_real_program_that_somebody_names_has_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "PEERS", tmp_path / "bin")
    assert agents.real() is None
    monkeypatch.setenv("SERAI_BENCH_CLAUDE", str(tmp_path / "claude"))
    with pytest.raises(SystemExit, match="is no program"):
        agents.real()
    monkeypatch.setenv("SERAI_BENCH_CLAUDE", sys.executable)
    assert agents.real() == Path(sys.executable)
