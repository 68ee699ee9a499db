"""The load report: for each guest that did not come in, one line and one record with its name and the one cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.host.host import LoadReport, LoadReportRow
from tests.support.host.zot_guests import make, open_host

WELL = "remember(tools=('well',))"


def write_broken_manifest(place: Path) -> Path:
    folder = make(place, WELL)
    (folder / "extension.json").write_text("{ not json")
    return folder


def write_not_executable(place: Path) -> Path:
    folder = make(place, WELL, exec="./run")
    (folder / "run").write_text("#!/bin/sh\n")
    return folder


def fails(body: str, settings: str = "", **manifest: Any) -> Callable[[Path], Path]:
    return lambda place: make(place, body, settings=settings, **manifest)


# How it is broken; the kind of error if it was found at all, and what the line says.
CASES: list[tuple[str, Callable[[Path], Path], str, str]] = [
    ("broken manifest", write_broken_manifest, "", "parse manifest: "),
    ("manifest of wrong types", fails(WELL, args="guest.py"), "", "parse manifest: "),
    ("version of a wrong type", fails(WELL, version=5), "", "parse manifest: "),
    ("missing executable", fails(WELL, exec="./gone"), "SpawnFailed", "gone does not exist"),
    ("nothing on the PATH", fails(WELL, exec="no-such-program"), "SpawnFailed", "there is no program no-such-program on the PATH"),
    ("not executable", write_not_executable, "SpawnFailed", "run is not an executable file"),
    ("mute", fails("time.sleep(1000)", "[limits]\nhello = 0.3\n"), "PeerTimeout", "no hello within 0.3 s (limit hello = 0.3)"),
    (
        "exit before hello",
        fails("sys.exit('no key')"),
        "PeerGone",
        "exited before hello (exit status 1); stderr ended with: no key",
    ),
    ("frame before hello", fails("send(type='ready')\ntime.sleep(1000)"), "BadFrame", 'first frame must be hello (got "ready")'),
    ("hello of wrong types", fails("send(type='hello', name=5)\ntime.sleep(1000)"), "BadFrame", "parse hello: "),
    (
        "5 MiB first line",
        fails("raw(b'x' * (5 << 20) + b'\\n')\ntime.sleep(1000)"),
        "OversizeFrame",
        "its first frame had 5242881 bytes (limit frame = 4194304)",
    ),
]


@pytest.mark.req("host.life.report")
@pytest.mark.req("zot.rule.1.2-one-bad-guest")
@pytest.mark.parametrize(("make_one", "kind", "why"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_a_guest_that_does_not_come_in_is_named_with_its_cause_and_the_others_come_in(
    tmp_path: Path, make_one: Callable[[Path], Path], kind: str, why: str
) -> None:
    folder = make_one(tmp_path)
    async with open_host(tmp_path, folder, make(tmp_path, WELL, name="well")) as host:
        report = host.report
        (line,) = report.to_lines()
        assert line.startswith("extension load: ")
        assert why in line
        assert str(folder) in line
        assert "zot:probe" in line or not kind
        assert not report.ok
        form = json.loads(msgspec.json.encode(report))
        if kind:
            (row,) = (row for row in form["guests"] if row["id"] == "zot:probe")
            assert (row["state"], row["error"]["error"], row["folder"]) == ("gone", kind, str(folder))
            assert why in row["why"]
            assert line == f"extension load: {folder}: zot:probe is gone: {row['why']}; {row['error']['hint']}"
            assert [row.id for row in report.failed] == ["zot:probe"]
        else:
            assert form["problems"] == [line.removeprefix("extension load: ")]
        assert not (await host.call_tool("well")).is_error


@pytest.mark.req("zot.rule.1.2-one-bad-guest")
async def test_all_of_them_together_hurt_nobody_else(tmp_path: Path) -> None:
    folders = [make_one(tmp_path / f"case{number}") for number, (_, make_one, _, _) in enumerate(CASES)]
    for number, folder in enumerate(folders):  # one name for each, where there is one to be read
        manifest = folder / "extension.json"
        manifest.write_text(manifest.read_text().replace('"probe"', f'"probe{number}"'))
    async with open_host(tmp_path, *folders, make(tmp_path, WELL, name="well")) as host:
        assert len(host.report.to_lines()) == len(CASES)
        assert not (await host.call_tool("well")).is_error


@pytest.mark.req("host.life.report")
async def test_a_name_clash_an_untrusted_project_and_a_disabled_guest_are_told_apart(tmp_path: Path) -> None:
    first, second = make(tmp_path / "one", WELL), make(tmp_path / "two", WELL)
    make(tmp_path / "home" / "guests", WELL, name="off", enabled=False)
    stranger = make(tmp_path / "project" / ".zot" / "extensions", WELL, name="stranger")
    async with open_host(tmp_path, first, second) as host:
        report = host.report
        assert report.to_lines() == [
            f"extension load: {second}: zot:probe is there already, from {first}: this one is not started",
            f"not trusted: zot:stranger in {stranger}: it was never trusted; `serai trust` in that folder lets it start",
        ]
        assert report.disabled == ("zot:off",)
        form = json.loads(msgspec.json.encode(report))
        assert [row["id"] for row in form["guests"]] == ["zot:probe"]
        assert form["untrusted"] == [f"zot:stranger in {stranger}: it was never trusted"]


async def test_when_all_is_well_there_is_nothing_to_tell_and_a_record_of_everybody(tmp_path: Path) -> None:
    body = "remember(command('go'), subscribe(['turn_start', 'session_start'], ['tool_call']), tools=('a', 'b'))"
    folder = make(tmp_path, body, version="1.5")
    async with open_host(tmp_path, folder) as host:
        report = host.report
        assert (report.ok, report.to_lines(), report.failed) == (True, [], ())
        (row,) = report.guests
        assert (row.id, row.state, row.scope, row.version, row.folder) == ("zot:probe", "ready", "ad hoc", "1.5", str(folder))
        assert (row.tools, row.commands, row.intercepts) == (("a", "b"), ("go",), ("tool_call",))
        assert row.events == ("session_started", "step_started")
        assert row.pid > 0
        assert 0 < row.seconds < 30
        assert str(row) == "zot:probe ready"
        assert msgspec.json.decode(msgspec.json.encode(report), type=LoadReport) == report


async def test_what_a_guest_asks_for_and_what_it_offers_in_vain_is_told(tmp_path: Path) -> None:
    asks = make(tmp_path, "remember(tools=('read', 'shared'))", name="asks", settings='env = ["API_KEY"]\nreplace = ["read"]\n')
    late = make(tmp_path, "remember(tools=('shared',))", name="late")
    async with open_host(tmp_path, asks, late) as host:
        lines = host.report.to_lines()
        assert 'zot:asks: it asks for env API_KEY, replace read; the settings under [guest."zot:asks"] grant it' in lines
        assert any(line.startswith("zot:asks: its tool read is shadowed by that of serai") for line in lines)
        assert "zot:late: its tool shared is shadowed by that of zot:asks" in lines
        assert len(lines) == 3
        assert not host.report.failed


async def test_what_a_guest_offers_and_cannot_be_taken_is_told(tmp_path: Path) -> None:
    folder = make(tmp_path, "remember(tools=('one', 'two', 'three'))", settings="[limits]\nregistrations = 1\n")
    async with open_host(tmp_path, folder) as host:
        report = host.report
        assert report.to_lines() == ["zot:probe: its tool two and what follows is not taken: it offers more than 1 names"]
        assert report.guests[0].tools == ("one",)
        assert report.ok


def test_a_failure_without_a_hint_is_told_without_one() -> None:
    row = LoadReportRow("zot:a", "gone", "/a", "user", why="it fell", error={"error": "SpawnFailed", "message": "it fell"})
    assert LoadReport((row,)).to_lines() == ["extension load: /a: zot:a is gone: it fell"]


async def test_a_slow_start_is_worth_a_word(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, WELL)) as host:
        host.guest("probe").seconds = 4.25
        assert str(host.report.guests[0]) == "zot:probe ready (slow: 4.2 s)"
