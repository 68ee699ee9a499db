"""`serai record …` as a person calls it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from datetime import timedelta
from pathlib import Path
from time import monotonic, time

import pytest

from serai.cli import record
from serai.record import Recorder, RecordingFolder, Secrets
from serai.record.recording_folder import RecordedRun
from tests.support.cli import fork_server

TOKEN = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(*arguments, env=os.environ | {"PYTHONUNBUFFERED": "1"} | env, cwd=Path.cwd())


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    return {"SERAI_HOME": str(tmp_path / "home"), "NO_COLOR": "1", "TZ": "UTC"}


@pytest.fixture
def recorded(home: dict[str, str]) -> RecordedRun:
    """A guest that was asked twice, and a model that was told a secret."""
    folder = RecordingFolder(Path(home["SERAI_HOME"]) / "recordings")
    now = monotonic()
    with Recorder(folder, command="serai run hello", secrets=Secrets()) as recorder:
        guest = recorder.open_tap("piglet:notes", kind="guest", dialect="jsonrpc", pid=17)
        model = recorder.open_tap("model:m", kind="model", dialect="http", framing="bodies")
        guest.frames("sent", now, b'{"jsonrpc":"2.0","id":1,"method":"tool/execute","params":{"city":"Bern"}}\n')
        model.record_body("sent", b'{\n"text": "%s"\n}' % TOKEN.encode(), now + 0.1)
        guest.frames("received", now + 0.25, b'{"jsonrpc":"2.0","id":1,"result":{"ok":true}}\n\x1b[31mnoise\x07\n')
        guest.end(stderr="bye\n")
    return folder.find()


def strip_times(text: str) -> list[str]:
    """Without times and numbers."""
    return [re.sub(r"^[\d:.]+ +\d+  ", "", line) for line in text.splitlines()]


@pytest.mark.req("record.cli.commands")
def test_list_tells_what_there_is(home: dict[str, str], recorded: RecordedRun) -> None:
    ran = run("record", "list", **home)
    size = f"{recorded.size} B".rjust(10)
    assert ran.stdout == f"{recorded.name}  {recorded.started:%Y-%m-%d %H:%M:%S}  {size}  serai run hello\n"
    [about] = map(json.loads, run("record", "list", "--json", **home).stdout.splitlines())
    assert about == {
        "run": recorded.name,
        "started": recorded.started.isoformat(),
        "bytes": recorded.size,
        "running": False,
        "command": "serai run hello",
    }


@pytest.mark.req("record.cli.commands")
def test_list_shows_the_good_ones_beside_a_bad_one(home: dict[str, str], recorded: RecordedRun) -> None:
    (recorded.files[0].parent / "20200101T000000-000-aaaa.000.rec").write_bytes(b"rubbish")
    ran = run("record", "list", **home)
    assert ran.returncode == 0
    assert "no recording of Serai" in ran.stdout.splitlines()[0]
    assert "serai run hello" in ran.stdout.splitlines()[1]


@pytest.mark.req("record.cli.commands", "record.secrets.lookalikes", "record.timeline.terminal")
def test_show_is_a_timeline_of_all_wires(home: dict[str, str], recorded: RecordedRun) -> None:
    ran = run("record", "show", **home)
    assert ran.stdout.splitlines()[0] == f"{recorded.name}: 2 wires, 2 frames sent, 2 received"
    assert strip_times(ran.stdout)[1:] == [
        "piglet:notes · open: wire 1, guest speaks jsonrpc, generation 1, pid 17",
        "model:m      · open: wire 2, model speaks http, generation 1",
        'piglet:notes → tool/execute 1 {"jsonrpc":"2.0","id":1,"method":"tool/execute","params":{"city":"Bern"}}',
        f'model:m      → object {{\\x0a"text": "{"*" * len(TOKEN)}"\\x0a}}',
        'piglet:notes ← result 1 250.000 ms {"jsonrpc":"2.0","id":1,"result":{"ok":true}}',
        "piglet:notes ← noise \\x1b[31mnoise\\x07",
        "piglet:notes · end: ended; the last on stderr: bye",
    ]


@pytest.mark.req("record.cli.commands", "record.timeline.filters")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (["--guest", "piglet:*", "--sent"], ["tool/execute"]),
        (["--who", "piglet:notes", "--received"], ["result", "noise"]),
        (["--wire", "2"], ["object"]),
        (["--type", "tool/*"], ["tool/execute"]),
        (["--text", "Bern"], ["tool/execute"]),
        (["--pairs"], ["tool/execute", "result"]),
        (["--first", "3"], ["tool/execute"]),
        (["--last", "2"], ["noise"]),
        (["--since", "0:00", "--until", "23:59:59.9"], ["tool/execute", "object", "result", "noise"]),
        (["--text", "\udce9"], []),
        (["--since", "1h"], ["tool/execute", "object", "result", "noise"]),
        (["--until", "2020-01-01T00:00"], []),
        (["--since", "2020-01-01", "--until", "1d"], []),
    ],
)
def test_show_can_be_narrowed(home: dict[str, str], recorded: RecordedRun, options: list[str], shown: list[str]) -> None:
    ran = run("record", "show", recorded.name, "--json", *options, **home)
    assert ran.returncode == 0, ran.stderr
    items = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [item["type"] for item in items if item["what"] == "frame"] == shown


@pytest.mark.req("record.cli.commands", "record.secrets.lookalikes")
def test_show_as_json_has_everything(home: dict[str, str], recorded: RecordedRun) -> None:
    items = [json.loads(line) for line in run("record", "show", "--json", **home).stdout.splitlines()]
    assert [item["what"] for item in items] == ["open", "open", "frame", "frame", "frame", "frame", "end"]
    asked, _, answered, noise = items[2:6]
    assert asked["frame"] == {"jsonrpc": "2.0", "id": 1, "method": "tool/execute", "params": {"city": "Bern"}}
    assert {key: answered[key] for key in ("wire", "who", "way", "type", "id", "request", "latency_us")} == {
        "wire": 1,
        "who": "piglet:notes",
        "way": "received",
        "type": "result",
        "id": "1",
        "request": asked["number"],
        "latency_us": 250_000,
    }
    assert asked["latency_us"] == 250_000
    assert abs(asked["at"] - time()) < 600
    assert noise["frame"] == "\x1b[31mnoise\x07"
    assert items[-1]["text"] == "ended; the last on stderr: bye"
    assert TOKEN not in str(items)


@pytest.mark.req("record.cli.commands", "record.timeline.terminal")
def test_show_can_print_frames_in_full(home: dict[str, str], recorded: RecordedRun) -> None:
    ran = run("record", "show", "--pretty", **home)
    assert '    {\n      "jsonrpc": "2.0",\n      "id": 1,\n      "result": {\n        "ok": true\n      }\n    }\n' in ran.stdout
    assert "    \\x1b[31mnoise\\x07\n" in ran.stdout
    assert "\x1b" not in ran.stdout
    assert "\x07" not in ran.stdout


@pytest.mark.req("record.cli.commands", "record.export.one-file")
def test_an_export_can_be_shown_anywhere(home: dict[str, str], recorded: RecordedRun, tmp_path: Path) -> None:
    path = tmp_path / "bug.rec"
    ran = run("record", "export", "-o", str(path), "--guest", "piglet:*", **home)
    assert (ran.returncode, ran.stderr) == (0, "")
    elsewhere = home | {"SERAI_HOME": str(tmp_path / "elsewhere")}
    shown = run("record", "show", str(path), **elsewhere).stdout
    assert "1 wires" in shown
    assert "model:m" not in shown
    assert "tool/execute" in shown
    again = run("record", "export", "-o", str(path), **home)
    assert (again.returncode, again.stderr) == (
        1,
        f"serai: {path}: the file exists already\nchoose another name, or replace it with --force\n",
    )
    assert run("record", "export", "-o", str(path), "--force", **home).returncode == 0
    assert "model:m" in run("record", "show", str(path), **elsewhere).stdout


@pytest.mark.req("record.cli.commands", "record.replay.either-side")
def test_replay_prints_what_the_dialect_makes_of_it(home: dict[str, str], recorded: RecordedRun) -> None:
    ran = run("record", "replay", "--wire", "1", "--json", **home)
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [event["event"] for event in events] == ["Answer", "Noise"]
    assert events[0]["call"]["what"] == "tool/execute"
    assert strip_times(run("record", "replay", "--wire", "1", "--side", "theirs", **home).stdout)[0].endswith(
        'Request {"id":"1","method":"tool/execute","params":"{\\"city\\":\\"Bern\\"}"}'
    )


@pytest.mark.req("record.cli.commands")
@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["show", "nonsense"], 1, "there is no recording nonsense\n`serai record list` shows what there is\n"),
        (["show", "./nowhere.rec"], 1, "there is no such file"),
        (["show", "--since", "yesterday"], 2, "'yesterday' is no time"),
        (["show", "--since", "99999999999d"], 2, "is no time"),
        (["show", "--last", "-1"], 2, "-1 is not in the range"),
        (["show", "./\x1b[2J.rec"], 1, "\\x1b[2J.rec: there is no such file"),
        (["replay", "--wire", "9"], 1, "it has no wire 9\nit has 1 (piglet:notes), 2 (model:m)\n"),
        (["replay"], 1, "it has several wires: say which\nit has 1 (piglet:notes), 2 (model:m)\n"),
        (["show", "--wire", "9"], 1, "it has no wire 9"),
        (["replay", "--wire", "2"], 1, "nothing here replays the dialect 'http'"),
        (["export", "--wire", "9", "-o", "x.rec"], 1, "no wire 9"),
        (["prune", "--older", "long"], 2, "'long' is no span of time"),
        (["prune", "--total", "much"], 2, "'much' is no size"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_or_two(
    home: dict[str, str], recorded: RecordedRun, arguments: list[str], status: int, said: str
) -> None:
    ran = run("record", *arguments, **home)
    assert ran.returncode == status
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_without_any_recording_that_is_said(home: dict[str, str]) -> None:
    ran = run("record", "list", **home)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "nothing was recorded yet" in ran.stderr
    assert "nothing was recorded yet" in run("record", "show", **home).stderr


HOSTILE = "\x1b]0;title\x07\x1b[2J"


@pytest.mark.req("record.timeline.terminal", "record.secrets.lookalikes")
@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["list", "--json"],
        ["show"],
        ["show", "--json"],
        ["show", "--pretty"],
        ["replay", "--wire", "1"],
        ["replay", "--json"],  # there is only one
    ],
)
def test_nothing_that_was_recorded_acts_on_the_terminal_or_shows_a_token(home: dict[str, str], arguments: list[str]) -> None:
    folder = RecordingFolder(Path(home["SERAI_HOME"]) / "recordings")
    with Recorder(folder, command=f"{HOSTILE} {TOKEN}", secrets=Secrets()) as recorder:
        tap = recorder.open_tap(f"{HOSTILE} {TOKEN}", kind="guest", dialect="jsonrpc")
        for frame in (
            {"id": TOKEN, "method": HOSTILE, "params": {"inner": json.dumps({"password": "correct-horse"})}},
            {"id": HOSTILE, "method": TOKEN},
            {"type": TOKEN, "subtype": HOSTILE},
        ):
            tap.frames("received", monotonic(), json.dumps(frame).encode() + b"\n")
        tap.frames("received", monotonic(), f"{HOSTILE} {TOKEN}\n".encode() + b'{"a":"\xff"}\n' + b"[" * 3000 + b"\n")
        tap.end(stderr=f"{HOSTILE} {TOKEN}")
        recorder.note(f"{HOSTILE} {TOKEN}")
    ran = run("record", *arguments, **home)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert not {"\x1b", "\x07"} & set(ran.stdout)
    assert TOKEN not in ran.stdout
    assert "correct-horse" not in ran.stdout
    assert len(ran.stdout) > 50


@pytest.mark.req("record.secrets.lookalikes")
@pytest.mark.parametrize("place", [0, 50, 80, 95, 98, 99, 100, 101])
def test_a_token_at_the_end_of_what_is_shown_is_masked_before_it_is_cut(place: int) -> None:
    shown = record.format_text(" " * place + TOKEN)
    assert len(shown) <= 100
    assert "gh" not in shown


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_terminal_that_lacks_characters_is_no_trouble(home: dict[str, str], recorded: RecordedRun, env: dict[str, str]) -> None:
    ran = run("record", "show", **home, **env)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.req("record.export.one-file")
def test_an_export_may_replace_its_own_source(home: dict[str, str], recorded: RecordedRun, tmp_path: Path) -> None:
    path = tmp_path / "bug.rec"
    assert run("record", "export", "-o", str(path), **home).returncode == 0
    before = path.read_bytes()
    assert run("record", "export", str(path), "-o", str(path), "--force", **home).returncode == 0
    assert path.read_bytes() == before
    assert sorted(child.name for child in tmp_path.iterdir()) == ["bug.rec", "home"]


@pytest.mark.req("record.cli.commands", "record.file.age-and-size")
def test_prune_removes_what_it_is_told_to(home: dict[str, str], recorded: RecordedRun) -> None:
    folder = recorded.files[0].parent
    for name in ("20200101T000000-000-aaaa", "20990101T000000-000-bbbb"):
        (folder / f"{name}.000.rec").write_bytes(b"x" * 2048)
    assert "1 files removed" in run("record", "prune", **home).stdout  # by the limits: what is too old
    assert run("record", "prune", "--total", "1G", **home).stdout.startswith("0 files removed")
    assert run("record", "prune", "--older", "3d", **home).stdout.startswith("0 files removed")
    ran = run("record", "prune", "--total", "2K", **home)
    assert ran.stdout == f"removed {recorded.files[0].name}\n1 files removed, 2.0 KiB left\n"
    assert "1 files removed, 0 B left" in run("record", "prune", "--all", **home).stdout


def test_times_are_those_of_the_place(home: dict[str, str], recorded: RecordedRun) -> None:
    here, there = (run("record", "show", **home | {"TZ": zone}).stdout.splitlines()[1][:8] for zone in ("UTC", "XXX-05:30"))
    day = timedelta(hours=24)
    assert (_parse_time(there) - _parse_time(here)) % day == timedelta(hours=5.5)


def _parse_time(text: str) -> timedelta:
    hours, minutes, seconds = map(int, text.split(":"))
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)
