"""The tool `bash`, with real shells."""

from __future__ import annotations

import asyncio
import json
import os
import tracemalloc
from pathlib import Path
from time import monotonic

import pytest

from serai.limits import KIB, MIB
from serai.wire.plain_process import PlainSpawner
from tests.conftest import PATIENT, QUICK
from tests.support.processes import Ends, lives
from tests.support.tool_harness import Started, Tools, is_failure, lines

pytestmark = pytest.mark.loops


@pytest.mark.req("resident.tools.bash")
async def test_both_outputs_come_in_the_order_they_were_written(tools: Tools) -> None:
    result = await tools("bash", command="echo 1; echo 2 >&2; echo 3; pwd; ls -A")
    assert lines(result) == ["1", "2", "3", os.path.realpath(tools.folder)]
    assert (await tools("bash", command="true")).text == "(no output)"


@pytest.mark.req("resident.tools.bash")
async def test_it_is_bash_and_a_mistake_in_the_command_is_its_output(tools: Tools) -> None:
    assert lines(await tools("bash", command='a=(x y); echo ${a[1]} $#; [[ y == ${a[1]} ]] && echo "it\'s"')) == ["y 0", "it's"]
    assert is_failure(await tools("bash", command="if"), "EXIT_NONZERO", "syntax error", "exit status 2")
    assert is_failure(await tools("bash", command="-x"), "EXIT_NONZERO", "command not found", "127")


@pytest.mark.req("resident.tools.bash")
async def test_how_it_ended_is_part_of_the_answer(tools: Tools) -> None:
    result = await tools("bash", command="echo out; echo err >&2; exit 3")
    assert is_failure(result, "EXIT_NONZERO")
    assert result.text == "out\nerr\n[exit status 3]"
    assert result.details is None  # else interceptors of results could not shorten what the model is told
    assert is_failure(await tools("bash", command="kill -9 $$"), "EXIT_NONZERO", "killed by SIGKILL")


@pytest.mark.req("resident.tools.bash")
async def test_it_has_no_input_and_no_terminal(tools: Tools) -> None:
    assert lines(await tools("bash", command="cat; read x || echo nothing; (: < /dev/tty) 2>/dev/null || echo none")) == [
        "nothing", "none"
    ]  # fmt: skip


@pytest.mark.req("resident.tools.bash")
async def test_it_runs_in_a_folder_below(tools: Tools) -> None:
    tools.file("below/x", "")
    assert lines(await tools("bash", command="ls", cwd="below")) == ["x"]
    assert lines(await tools("bash", command="ls", workdir="below", description="to see what is there")) == ["x"]
    assert is_failure(await tools("bash", command="ls", cwd="below/x"), "INVALID_ARGS", "no folder")
    assert is_failure(await tools("bash", command="ls", cwd="belw"), "FILE_NOT_FOUND", "below")


@pytest.mark.req("resident.tools.bash-time")
@pytest.mark.parametrize("time", [{"timeout": 0.5}, {"timeout_ms": 500}])
async def test_its_time_ends_it_and_what_it_said_is_kept(tmp_path: Path, spawner: PlainSpawner, time: dict[str, float]) -> None:
    tools = Tools(tmp_path, Started(spawner), QUICK)
    result = await tools("bash", command="echo started; sleep 60; echo never", **time)
    assert is_failure(result, "TIMEOUT", "timeout")
    assert result.text == "started\n[ended after 0.5 s, with everything it started]"


@pytest.mark.req("resident.tools.bash-time")
async def test_at_the_end_of_its_time_it_may_tidy_up(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, Started(spawner), PATIENT)
    command = 'trap "echo tidied; exit" TERM; echo up; while :; do sleep 0.01; done'
    result = await tools("bash", command=command, timeout=0.2)
    assert is_failure(result, "TIMEOUT", "tidied")


@pytest.mark.req("resident.tools.bash-time")
async def test_its_usual_time_is_a_limit(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, spawner, QUICK.but(shell=0.2))
    assert is_failure(await tools("bash", command="sleep 60"), "TIMEOUT", "0.2 s")


def _pids(tools: Tools, *names: str) -> list[int]:
    return [int((tools.folder / name).read_text()) for name in names]


# Three ways to get away: stay in the background, a session of one's own, and both behind a parent that is gone.
RUNAWAYS = """
sleep 1000 & echo $! > plain
setsid sh -c 'echo $$ > session; exec sleep 1000' &
(setsid sh -c 'echo $$ > orphan; exec sleep 1000' &)
while ! [ -s session -a -s orphan ]; do sleep 0.01; done
"""


@pytest.mark.req("resident.tools.bash-tree")
@pytest.mark.parametrize("end", ["", "exit 1", "kill -9 $$", "sleep 1000"])
async def test_nothing_that_it_started_outlives_the_call(tmp_path: Path, spawner: PlainSpawner, end: str) -> None:
    tools = Tools(tmp_path, Started(spawner), QUICK)
    result = await tools("bash", command=f"{RUNAWAYS} echo up; {end}", timeout=0.2 if "sleep" in end else 30)
    assert result.code == {"": "", "sleep 1000": "TIMEOUT"}.get(end, "EXIT_NONZERO")
    assert not [pid for pid in _pids(tools, "plain", "session", "orphan") if lives(pid)]


@pytest.mark.req("resident.tools.bash-tree")
async def test_a_cancelled_call_leaves_nothing_running(tools: Tools) -> None:
    ready = asyncio.Event()
    tools.tell = lambda text: ready.set() if "ready" in text else None
    calling = asyncio.create_task(tools("bash", command=f"{RUNAWAYS} trap '' TERM; echo ready; while :; do sleep 1000; done"))
    await asyncio.wait_for(ready.wait(), 20)
    pids = _pids(tools, "plain", "session", "orphan")
    assert all(map(lives, pids))
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    with Ends(pids) as ends:
        assert not ends.left_after(10)


@pytest.mark.req("resident.tools.bash-bounded")
async def test_of_long_output_both_ends_are_kept_and_the_middle_is_counted(tools: Tools) -> None:
    result = await tools("bash", command="seq 1 100000")
    said = lines(result)
    assert said[:3] == ["1", "2", "3"]
    assert said[-2:] == ["99999", "100000"]
    assert len(result.text.encode()) <= 48 * KIB + 100
    (remark,) = (line for line in said if "left out" in line)
    kept = sum(len(line) + 1 for line in said if line.isdigit())
    assert remark == f"[… {588_895 - kept} bytes left out …]"
    numbers = [int(line) for line in said if line.isdigit()]
    assert numbers == sorted(numbers)  # only whole lines


@pytest.mark.req("resident.tools.bash-bounded")
async def test_much_output_needs_neither_memory_nor_the_loop(tools: Tools) -> None:
    told: list[int] = []  # how long each piece was
    tools.tell = lambda text: told.append(len(text))
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            await asyncio.sleep(0)
            passes += 1

    counting = asyncio.create_task(count())
    tracemalloc.start()
    began = monotonic()
    result = await tools("bash", command=f"yes endless | head -c {16 * MIB}")
    seconds = monotonic() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    counting.cancel()
    assert "left out" in result.text
    assert len(result.text.encode()) <= 48 * KIB + 200
    assert peak < 1 * MIB
    assert passes >= 5
    assert len(told) <= seconds / 0.05 + 2  # the pause between two pieces, the first and the last
    assert max(told) < 20 * KIB


@pytest.mark.req("resident.tools.bash-bounded")
async def test_output_without_end_ends_with_its_time(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, Started(spawner), QUICK)
    result = await tools("bash", command="yes endless", timeout=1)
    assert is_failure(result, "TIMEOUT", "left out")
    assert len(result.text.encode()) <= 48 * KIB + 200


@pytest.mark.req("resident.tools.bash-told")
async def test_who_watches_is_told_while_it_runs(tools: Tools) -> None:
    heard = asyncio.Event()

    def tell(text: str) -> None:
        tools.told.append(text)
        (tools.folder / "heard").touch()
        heard.set()

    tools.tell = tell
    # It waits for the watcher: were it told only at the end, this would not end.
    result = await tools("bash", command="echo begun; while ! [ -e heard ]; do sleep 0.01; done; printf 'ä€'; echo; echo over")
    assert heard.is_set()
    assert tools.told[0] == "begun\n"
    assert "".join(tools.told) == result.text + "\n" == "begun\nä€\nover\n"


@pytest.mark.req("resident.tools.bash-told")
async def test_a_watcher_that_fails_disturbs_nobody(tools: Tools, caplog: pytest.LogCaptureFixture) -> None:
    def tell(text: str) -> None:
        raise RuntimeError("not listening")

    tools.tell = tell
    assert lines(await tools("bash", command="echo well")) == ["well"]
    assert "not listening" in caplog.text


@pytest.mark.req("resident.tools.bash-text")
async def test_escapes_and_what_is_no_text_are_not_for_the_model(tools: Tools) -> None:
    command = r"printf '\033[1;31mred\033[0m \033]0;title\007plain\r\nover\rwritten \033(B\0\b\x7f \377\xc3\xa4\n'"
    assert lines(await tools("bash", command=command)) == ["red plain", "over", "written  \ufffdä"]


@pytest.mark.req("resident.tools.bash-environment")
async def test_it_sees_no_credentials_unless_they_were_granted(tmp_path: Path, spawner: PlainSpawner) -> None:
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "ANTHROPIC_API_KEY": "sk-secret",
        "GITHUB_TOKEN": "granted",
        "DATABASE": "postgres://me:secret@there/",
        "PAGER": "my-pager",
    }
    tools = Tools(tmp_path, spawner, QUICK, environ=environ, grants=["GITHUB_TOKEN"])
    result = await tools("bash", command="env")
    assert "secret" not in result.text
    seen = dict(line.split("=", 1) for line in lines(result))
    assert seen["GITHUB_TOKEN"] == "granted"
    assert seen["PAGER"] == "my-pager"  # a person's own word counts
    assert seen["GIT_TERMINAL_PROMPT"] == "0"
    assert seen["GIT_PAGER"] == "cat"


@pytest.mark.req("resident.tools.bash")
async def test_commands_run_side_by_side(tools: Tools) -> None:
    """Each waits for the other's file: one after the other they would wait for ever."""
    ways = [("a", "b"), ("b", "a")]
    command = "touch {}; while ! [ -e {} ]; do sleep 0.01; done; echo met"
    results = await asyncio.gather(*(tools("bash", command=command.format(*way), timeout=20) for way in ways))
    assert [result.text for result in results] == ["met", "met"]


@pytest.mark.req("resident.tools.bash-bounded")
async def test_a_line_of_ten_megabytes_is_bounded_and_can_be_written_down(tools: Tools) -> None:
    result = await tools("bash", command="head -c 10000000 /dev/urandom", timeout=30)
    assert len(result.text.encode()) <= 48 * KIB + 200
    json.dumps(result.text).encode()
