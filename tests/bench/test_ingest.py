"""The ingest suite measures what it says: the stream is what it claims to be, and who drops an event does not get a number."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import stream
from bench.stream import Stream
from bench.workers.ingest import CODECS
from serai.wire.codec import Noise, Unknown

ROOT = Path(__file__).parents[2]


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    monkeypatch.setattr(stream, "BUILD", tmp_path)
    monkeypatch.setattr(stream, "TURNS", stream.TURNS_OF_A_PROMPT)
    return stream.build()


def read_lines(source: Stream) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(source.path).read_bytes().splitlines()]


def ingest(source: Stream, *how: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.workers.ingest", *map(str, source), *how]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_the_stream_is_always_the_same_and_counted_right(short: Stream, tmp_path: Path) -> None:
    text = Path(short.path).read_bytes()
    (tmp_path / "stream.json").unlink()
    assert stream.build() == short
    assert Path(short.path).read_bytes() == text
    assert (short.size, short.events) == (len(text), text.count(b"\n"))
    deltas = [line["event"]["delta"] for line in read_lines(short) if line.get("event", {}).get("type") == "content_block_delta"]
    results = [line["message"]["content"][0]["content"] for line in read_lines(short) if line["type"] == "user"]
    assert short.text == sum(len(delta.get("text", "")) for delta in deltas) + sum(map(len, results))


def test_it_has_the_shape_of_an_agents_stream(short: Stream) -> None:
    events = read_lines(short)
    deltas = sum(line.get("event", {}).get("type") == "content_block_delta" for line in events)
    assert 0.94 < deltas / len(events) < 0.96
    assert (events[0]["subtype"], events[-1]["type"]) == ("init", "result")
    text = Path(short.path).read_bytes()
    assert 45_000 < max(map(len, text.splitlines())) < 60_000
    assert not text.isascii()


def test_the_types_of_the_worker_fit_every_line(short: Stream) -> None:
    text = Path(short.path).read_bytes()
    assert not [item for item in CODECS["all"].create_reader().read(text) if isinstance(item, Unknown | Noise)]
    unknown = [item for item in CODECS["some"].create_reader().read(text) if isinstance(item, Unknown)]
    assert {item.kind for item in unknown} == {"system"}


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("types", ["all", "some"])
def test_the_worker_gets_everything_also_when_the_child_must_wait(short: Stream, loop: str, types: str) -> None:
    ran = ingest(short, loop, types, "10")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout).keys() == {"per_second", "mb_s", "cpu_us", "peak_mb"}


@pytest.mark.parametrize("lost", ["events", "text"])
def test_a_reader_that_lost_something_gets_no_number(short: Stream, lost: str) -> None:
    ran = ingest(short._replace(**{lost: getattr(short, lost) + 1}), "asyncio", "all", "1000")
    assert ran.returncode != 0
    assert "were sent" in ran.stderr
    assert ran.stdout == ""
