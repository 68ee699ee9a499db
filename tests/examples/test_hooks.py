"""The examples of hooks do what their comments say, through the runner of boxes, and `serai hook check` finds nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from serai.boxes.hooks import Hook, HookRunner
from serai.dialects.hookproto.messages import Box
from serai.limits import Limits
from serai.testing.conformance import hook as conformance
from serai.wire.plain_process import PlainSpawner

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "hooks"
README = (EXAMPLES / "README.md").read_text()
HOOKS = ["by_hand.py", "token.sh", "token_sdk.py"]
MINTING = ["token_sdk.py", "token.sh"]
JQ = {"token.sh": [pytest.mark.needs("jq")]}
minting = pytest.mark.parametrize("name", [pytest.param(name, marks=JQ.get(name, [])) for name in MINTING])
BOX = Box(box_id="sample", description='a "sample" of $(nothing)')


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """With the Python of the tests, which has Serai, and with the `serai` beside it."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "LANG": "C.UTF-8", "TOKENS_DIR": str(tmp_path / "tokens"), "SERAI_HOME": str(tmp_path / "home")}


def test_every_example_is_known_here_and_can_be_executed() -> None:
    assert sorted(path.name for path in EXAMPLES.iterdir() if path.is_file() and path.suffix != ".md") == HOOKS
    assert sorted(re.findall(r"^\| \[([\w.]+)\]\(\1\) \|", README, re.MULTILINE)) == HOOKS
    for name in HOOKS:
        assert os.access(EXAMPLES / name, os.X_OK), name


async def do_nothing(*_: str) -> None:
    pass


@minting
async def test_a_token_lives_as_long_as_its_box(name: str, tmp_path: Path, environ: dict[str, str], spawner: PlainSpawner) -> None:
    runner = HookRunner([Hook(str(EXAMPLES / name))], spawner=spawner, limits=Limits(), environ=environ)
    outcome = await runner.create(BOX, str(tmp_path), do_nothing)
    assert outcome.error is None
    [(key, state)] = outcome.states.items()
    [file] = outcome.files
    assert (file.path, file.mode, file.uid, file.gid) == ("/root/.config/token", 0o600, 0, 0)
    [minted] = (tmp_path / "tokens").iterdir()
    assert minted.name == state
    assert re.fullmatch(rb"[0-9a-f]{64}\n", file.content)
    assert minted.read_bytes() == file.content
    assert minted.stat().st_mode & 0o777 == 0o600
    for _ in range(2):  # the same state may come back twice
        assert await runner.destroy(Box(box_id="sample"), {key: state}) is None
        assert not minted.exists()


@minting
async def test_a_state_of_somebody_else_removes_nothing(
    name: str, tmp_path: Path, environ: dict[str, str], spawner: PlainSpawner
) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "precious").touch()
    hook = Hook(str(EXAMPLES / name))
    failure = await HookRunner([hook], spawner=spawner, limits=Limits(), environ=environ).destroy(BOX, {hook.key: "../precious"})
    assert failure is not None
    assert "the state is none of ours" in failure.message
    assert (tmp_path / "precious").exists()


@minting
async def test_without_a_token_server_there_is_no_box(
    name: str, tmp_path: Path, environ: dict[str, str], spawner: PlainSpawner
) -> None:
    del environ["TOKENS_DIR"]
    runner = HookRunner([Hook(str(EXAMPLES / name))], spawner=spawner, limits=Limits(), environ=environ)
    outcome = await runner.create(BOX, str(tmp_path), do_nothing)
    assert outcome.error is not None
    assert "TOKENS_DIR: set it to the folder of the token server" in outcome.error.message


@pytest.mark.needs("jq")
async def test_the_shell_script_takes_its_token_back_when_it_fails_afterwards(
    tmp_path: Path, environ: dict[str, str], spawner: PlainSpawner
) -> None:
    jq = tmp_path / "bin" / "jq"
    jq.parent.mkdir()
    jq.write_text(
        f'#!/bin/sh\ncase $* in *state:*) ls "$TOKENS_DIR" >{tmp_path}/seen; exit 5;; esac\nPATH=${{PATH#*:}} exec jq "$@"\n'
    )
    jq.chmod(0o755)
    environ["PATH"] = f"{jq.parent}:{environ['PATH']}"
    runner = HookRunner([Hook(str(EXAMPLES / "token.sh"))], spawner=spawner, limits=Limits(), environ=environ)
    outcome = await runner.create(BOX, str(tmp_path), do_nothing)
    assert outcome.error is not None
    assert outcome.states == {}
    assert (tmp_path / "seen").read_text().strip()  # it had been minted
    assert list((tmp_path / "tokens").iterdir()) == []


async def test_the_one_by_hand_has_three_files_and_no_state(tmp_path: Path, environ: dict[str, str], spawner: PlainSpawner) -> None:
    runner = HookRunner([Hook(str(EXAMPLES / "by_hand.py"))], spawner=spawner, limits=Limits(), environ=environ)
    outcome = await runner.create(BOX, str(tmp_path), do_nothing)
    assert (outcome.error, outcome.states) == (None, {})
    about = {file.path: (file.mode, file.content) for file in outcome.files}
    assert about["/etc/box-id"] == (0o644, b"sample\n")
    assert about["/root/bin/greet"][0] == 0o755
    mode, seed = about["/root/.seed"]
    assert (mode, len(seed)) == (0o600, 32)


def test_the_one_by_hand_needs_nothing_but_python(environ: dict[str, str]) -> None:
    command = [sys.executable, "-I", "-S", str(EXAMPLES / "by_hand.py")]
    ran = subprocess.run(command, input=b'{"event":"box.other","box":{}}', env={}, capture_output=True, timeout=40, check=True)
    assert ran.stdout == b"{}"


@pytest.mark.parametrize("name", [pytest.param(name, marks=JQ.get(name, [])) for name in HOOKS])
def test_a_check_finds_nothing(name: str, tmp_path: Path, environ: dict[str, str]) -> None:
    report = conformance.check(EXAMPLES / name, environ=environ)
    assert not report.of("failed", "warned"), str(report)
    tokens = tmp_path / "tokens"
    assert tokens.exists() is (name in MINTING)
    assert not tokens.exists() or list(tokens.iterdir()) == []


# -- the README -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.needs("jq")
def test_what_the_readme_runs_does_what_it_says(environ: dict[str, str], tmp_path: Path) -> None:
    script = "set -eu\n" + "\n".join(re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
    env = environ | {"TMPDIR": str(tmp_path)}
    ran = subprocess.run(["sh", "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=55, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(" 0 warned, 0 failed,") == 3
    assert re.search(r"^[0-9a-f]{16}$", ran.stdout, re.MULTILINE)  # the token that `ls` shows, and that `rmdir` finds gone
    assert not [path for path in tmp_path.iterdir() if path.name not in ("home", "tokens")]


def test_what_the_readme_shows_of_the_protocol_is_that() -> None:
    from serai.dialects.hookproto.host_side import read_response, resolve_file
    from serai.dialects.hookproto.peer_side import read_request

    create, answer, destroy = re.findall(r"^```json\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert read_request(create.encode()).event == "box.create"
    response = read_response(answer.encode())
    assert [resolve_file(file, pytest.fail).mode for file in response.files] == [0o600]
    assert read_request(destroy.encode()).state == response.state
    assert all(isinstance(json.loads(text), dict) for text in (create, answer, destroy))
