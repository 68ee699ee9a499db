"""The box of tools: what it offers, what it refuses, and where its paths may lead."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serai.errors import BadSettings
from serai.model.tools import ToolBox, ToolCall, ToolResult
from serai.policy.call_facts import BESIDE, CWD, GLOBS
from serai.tools import BuiltInTools
from serai.tools.programs.file_walk import open_folder
from serai.tools.workspace import ToolFailure, Workspace, WorkspacePath, hold_file
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.profiles import examples
from tests.support.tool_harness import Tools, is_failure, lines

SECRET = "nobody may see this"
SWAP = """
import os, select, sys
os.write(1, b".")
while not select.select([0], [], [], 0)[0]:
    os.rename("spot", "aside")
    os.symlink(sys.argv[1], "spot")
    os.unlink("spot")
    os.rename("aside", "spot")
"""


@pytest.mark.req("resident.tools.offered")
async def test_the_six_tools_are_offered_in_order_and_say_how_they_want_to_be_treated(tools: Tools) -> None:
    box: ToolBox = tools.box
    assert [spec.name for spec in box.list()] == ["bash", "edit", "find", "grep", "read", "write"]
    assert [spec.name for spec in box.list() if spec.background] == ["find", "grep", "read"]
    assert [spec.name for spec in box.list() if spec.interrupt == "block"] == ["edit", "write"]
    assert all(spec.description for spec in box.list())


@pytest.mark.req("resident.tools.offered")
async def test_every_argument_is_one_that_policy_understands(tools: Tools) -> None:
    """A rule sees all that a call says: an argument that policy does not know would make another call of it."""
    for spec in tools.box.list():
        known = {*BESIDE[spec.name], *GLOBS.get(spec.name, ()), "path", *(("command", *CWD) if spec.name == "bash" else ())}
        assert set(spec.schema["properties"]) <= known, spec.name


@pytest.mark.req("resident.tools.offered")
async def test_only_some_can_be_offered(tmp_path: Path, spawner: PlainSpawner) -> None:
    box = BuiltInTools(tmp_path, spawner=spawner, only=("read", "find"))
    assert [spec.name for spec in box.list()] == ["find", "read"]
    assert is_failure(await box.call(ToolCall("bash", {"command": "true"})), "UNKNOWN_TOOL", "bash", "find, read")
    with pytest.raises(BadSettings, match="reed"):
        BuiltInTools(tmp_path, spawner=spawner, only=("reed",))
    with pytest.raises(BadSettings, match="no folder"):
        BuiltInTools(tmp_path / "none", spawner=spawner)


BAD: list[tuple[str, Any, str]] = [
    ("read", {}, "path"),
    ("read", {"path": 1}, "path"),
    ("read", {"path": "a", "offset": 0}, "offset"),
    ("read", {"path": "a", "file": "b"}, "file"),
    ("read", '{"path": ', "no JSON object"),
    ("read", ["a"], "no JSON object"),
    ("write", {"path": "a"}, "content"),
    ("write", {"path": "a", "content": "\ud800"}, "content"),
    ("edit", {"path": "a"}, "old"),
    ("edit", {"path": "a", "old": "x", "new": "x"}, "the same"),
    ("edit", {"path": "a", "old": "x", "new": "\ud800"}, "new"),
    ("edit", {"path": "a", "edits": [{"old": "x"}]}, "edits[0]"),
    ("edit", {"path": "a", "old": "x", "new": "y", "edits": [{"old": "x", "new": "y"}]}, "either"),
    ("bash", {"command": ""}, "command"),
    ("bash", {"command": "true", "timeout": 1e9}, "timeout"),
    ("bash", {"command": "true", "timeout": -1}, "timeout"),
    ("bash", {"command": "a\0b"}, "NUL"),
    ("bash", {"command": "\ud800"}, "half a character"),
    ("bash", {"command": "true" * 100_000}, "too long"),
    ("grep", {"pattern": ""}, "pattern"),
    ("grep", {"pattern": "a", "limit": "many"}, "limit"),
    ("grep", {"pattern": "("}, "pattern"),
    ("find", {"pattern": "*", "type": "door"}, "type"),
    ("find", {"pattern": "../*"}, "pattern"),
    ("find", {"pattern": "/etc/*"}, "pattern"),
    ("read", {"path": "a\0b"}, "NUL"),
    ("read", {"path": "\ud800"}, "half a character"),
    ("read", {"path": " "}, "empty"),
    ("read", {"path": "x" * 300}, "shorter"),
    ("read", {"path": "x/" * 1_000_000}, "shorter"),
    ("edit", {"path": "a", "edits": [{"old": "x", "new": "y"}] * 101}, "edits"),
    ("read", {"path": "a", "\ud800": 1}, "half a character"),
]


@pytest.mark.req("resident.tools.arguments")
@pytest.mark.parametrize(("name", "arguments", "named"), BAD, ids=[f"{name}-{number}" for number, (name, _, _) in enumerate(BAD)])
async def test_bad_arguments_are_told_by_name(tools: Tools, name: str, arguments: Any, named: str) -> None:
    tools.file("a", "x\n")
    result = await tools.box.call(ToolCall(name, arguments))
    assert is_failure(result, "INVALID_ARGS", named)
    (result.text + result.hint).encode()  # a model's half characters are not carried on


@pytest.mark.req("resident.tools.arguments")
async def test_what_the_schema_refuses_the_tool_refuses_and_what_it_offers_the_tool_takes(tools: Tools) -> None:
    """The host checks by the schema before it calls."""
    schemas = {spec.name: jsonschema_rs.validator_for(spec.schema) for spec in tools.box.list()}
    refused = [arguments for name, arguments, _ in BAD if _is_json(arguments) and not schemas[name].is_valid(arguments)]
    assert len(refused) >= 13  # of which the test before shows that the tool refuses them too
    tools.file("a", "x\n")
    every: dict[str, dict[str, Any]] = {
        "bash": {"command": "true", "timeout": 5, "timeout_ms": 5000, "description": "", "cwd": ".", "workdir": "."},
        "read": {"path": "a", "offset": 1, "limit": 1},
        "edit": {"path": "a", "old": "x", "new": "y", "replace_all": True, "edits": []},
        "find": {"pattern": "*", "path": ".", "type": "any", "limit": 1},
        "grep": {"pattern": "x", "path": ".", "glob": "*", "ignore_case": True, "literal": True, "context": 1, "limit": 1},
        "write": {"path": "a", "content": ""},
    }
    for spec in tools.box.list():
        assert set(every[spec.name]) == set(spec.schema["properties"])
        assert schemas[spec.name].is_valid(every[spec.name])
    for name in ("bash", "read", "edit", "find", "grep", "write"):
        assert not (await tools(name, **every[name])).is_error
    assert not (await tools("read", path="a", offset=None, limit=None)).is_error  # some models name all they might say


def _is_json(arguments: object) -> bool:
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@pytest.mark.req("resident.tools.confined")
@pytest.mark.parametrize(
    "way", ["../secret", "link", "folder/../../secret", "inside/secret", "~/../../../../etc/passwd", "/etc/passwd"]
)
async def test_no_path_leads_out_of_the_working_directory(tools: Tools, tmp_path: Path, way: str) -> None:
    (tmp_path / "secret").write_text(SECRET)
    tools.file("folder/x", "")
    (tools.folder / "link").symlink_to(tmp_path / "secret")
    (tools.folder / "inside").symlink_to("..")
    for name, more in (
        ("read", {}),
        ("write", {"content": "gone"}),
        ("edit", {"old": "nobody", "new": "everybody"}),
        ("grep", {"pattern": "nobody"}),
    ):
        result = await tools(name, path=way, **more)
        assert is_failure(result, "PERMISSION_DENIED", "outside", "allow")
    assert is_failure(await tools("bash", command="true", cwd=".."), "PERMISSION_DENIED")
    assert (tmp_path / "secret").read_text() == SECRET


@pytest.mark.req("resident.tools.confined")
async def test_a_call_that_was_allowed_may_leave_it_and_no_other(tmp_path: Path, spawner: PlainSpawner) -> None:
    (tmp_path / "secret").write_text(SECRET)
    asked: list[tuple[ToolCall, str]] = []

    def outside(call: ToolCall, path: str) -> bool:
        asked.append((call, path))
        return call.id == "7"

    tools = Tools(tmp_path, spawner, QUICK, outside=outside)
    tools.file("mine", "x")
    call = ToolCall("read", {"path": "../secret"}, id="7")
    assert (await tools.box.call(call)).text == f"1\t{SECRET}"
    assert is_failure(await tools("read", path="../secret"), "PERMISSION_DENIED")
    assert asked[0] == (call, os.path.realpath(tmp_path / "secret"))
    await tools("read", path="mine")
    assert len(asked) == 2  # nobody is asked about what is inside


@pytest.mark.req("resident.tools.confined")
async def test_where_a_call_leads_is_known_before_it_runs(tmp_path: Path, spawner: PlainSpawner) -> None:
    """A yes is bound to what was shown: a link that leads elsewhere by now is not what was allowed."""
    outside, other = tmp_path / "outside", tmp_path / "other"
    outside.write_text(SECRET)
    other.write_text(SECRET)
    allowed: list[str] = []
    tools = Tools(tmp_path, spawner, QUICK, outside=lambda _, path: path in allowed)
    link = tools.folder / "README.md"
    link.symlink_to(outside)
    call = ToolCall("read", {"path": "README.md"})
    allowed += tools.box.leads_outside(call)
    assert allowed == [os.path.realpath(outside)]
    assert (await tools.box.call(call)).text == f"1\t{SECRET}"
    link.unlink()
    link.symlink_to(other)
    assert is_failure(await tools.box.call(call), "PERMISSION_DENIED", "other")


@pytest.mark.req("resident.tools.confined")
async def test_every_tool_says_where_it_leads_and_bad_arguments_lead_nowhere(tmp_path: Path, spawner: PlainSpawner) -> None:
    (tmp_path / "also").mkdir()
    tools = Tools(tmp_path, spawner, QUICK, also=[tmp_path / "also"])
    above = os.path.realpath(tmp_path)
    lead: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": ".."}),
        ("write", {"path": "..", "content": ""}),
        ("edit", {"path": ".."}),
        ("grep", {"path": "..", "pattern": "x"}),
        ("find", {"path": "..", "pattern": "x"}),
        ("bash", {"cwd": "..", "command": "x"}),
        ("bash", {"workdir": "..", "command": "x"}),
    ]
    for name, arguments in lead:
        assert tools.box.leads_outside(ToolCall(name, arguments)) == (above,)
    for name, arguments, _ in [*BAD, ("none", {"path": ".."}, ""), ("bash", {"command": "cat /etc/passwd"}, "")]:
        assert tools.box.leads_outside(ToolCall(name, arguments)) == ()
    for inside in ("../also/x", "x", "../work/x"):
        assert tools.box.leads_outside(ToolCall("read", {"path": inside})) == ()


@pytest.mark.req("resident.tools.confined")
async def test_further_folders_can_be_opened_to_it(tmp_path: Path, spawner: PlainSpawner) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "otherwise").mkdir()
    tools = Tools(tmp_path, spawner, QUICK, also=[tmp_path / "other"])
    assert not (await tools("write", path=str(tmp_path / "other" / "new"), content="x")).is_error
    assert is_failure(await tools("write", path=str(tmp_path / "otherwise" / "new"), content="x"), "PERMISSION_DENIED")
    assert lines(await tools("find", pattern="*", path="../other")) == [str(tmp_path / "other" / "new")]


@pytest.mark.req("resident.tools.links")
@pytest.mark.parametrize("make", [False, True])
def test_a_link_that_is_put_in_the_way_after_the_look_leads_nowhere(tmp_path: Path, make: bool) -> None:
    """As if somebody were quick enough, between the check and the use."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.symlink_to(outside)
    place = WorkspacePath(str(inside / "below" / "file"), "inside/below/file")  # judged when `inside` was a folder
    with pytest.raises(ToolFailure, match="a link was put in its way") as caught, hold_file(place, make=make):
        raise AssertionError("it was followed")
    assert caught.value.code == "PERMISSION_DENIED"
    assert os.listdir(outside) == []
    with pytest.raises(NotADirectoryError):  # the same for a search, which opens its folder by itself
        open_folder(str(inside))


@pytest.mark.req("resident.tools.links")
def test_a_link_that_is_put_in_the_place_of_a_file_is_not_read_and_not_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(SECRET)
    link = tmp_path / "link"
    link.symlink_to("file")
    with hold_file(WorkspacePath(str(link), "link")) as spot:
        for use in (lambda: spot.read(100), spot.stat, lambda: spot.replace(b"", None)):
            with pytest.raises(ToolFailure, match="link") as caught:
                use()
            assert caught.value.code == "NOT_REGULAR_FILE"
    assert (tmp_path / "file").read_text() == SECRET


@pytest.mark.req("resident.tools.links")
async def test_while_somebody_swaps_a_folder_and_a_link_nothing_outside_is_read(tools: Tools, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text(SECRET)
    tools.file("spot/file", "mine\n")
    # Another process, because one that shares our interpreter is never in between.
    argv = [sys.executable, "-I", "-S", "-c", SWAP, str(outside)]
    swapping = subprocess.Popen(argv, cwd=tools.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert swapping.stdout
    swapping.stdout.read(1)
    try:
        results: list[ToolResult] = []
        for _ in range(30):
            results += await asyncio.gather(*(tools("read", path="spot/file") for _ in range(5)))
    finally:
        swapping.communicate(b".")
    assert not [result for result in results if SECRET in result.text]
    assert {result.code for result in results} <= {"", "PERMISSION_DENIED", "FILE_NOT_FOUND"}
    assert (await tools("read", path="spot/file")).text == "1\tmine"


@pytest.mark.req("resident.tools.confined")
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(st.sampled_from(["..", ".", "a", "up", "round", "b", "", "~", "x\n"]), min_size=1, max_size=8).map("/".join))
def test_whatever_is_said_a_place_is_inside_or_refused(tmp_path: Path, said: str) -> None:
    work = tmp_path / "work"
    if not work.exists():
        (work / "a").mkdir(parents=True)
        (work / "up").symlink_to("..")
        (work / "a" / "round").symlink_to("../a")
    places = Workspace(work, (), lambda _, __: False)
    with contextlib.suppress(ToolFailure):
        place = places.find(said, ToolCall("read"))
        assert f"{place.path}/".startswith(f"{os.path.realpath(work)}/")


@pytest.mark.req("resident.tools.codes")
async def test_what_is_not_there_is_said_with_what_is_nearly_there(tools: Tools) -> None:
    tools.file("src/Main.py", "")
    tools.file("src/parser.py", "")
    assert is_failure(await tools("read", path="src/main.py"), "FILE_NOT_FOUND", "Main.py")
    assert is_failure(await tools("read", path="src/parsers.py"), "FILE_NOT_FOUND", "parser.py")
    assert is_failure(await tools("read", path="scr/parser.py"), "FILE_NOT_FOUND", "there is src")
    assert is_failure(await tools("read", path="src/parser.py/x"), "FILE_NOT_FOUND", "no folder")
    assert is_failure(await tools("grep", pattern="x", path="srcs"), "FILE_NOT_FOUND", "src")
    assert is_failure(await tools("edit", path="zzz", old="a", new="b"), "FILE_NOT_FOUND", "find shows")


@pytest.mark.req("resident.tools.codes")
async def test_what_the_machine_refuses_is_a_permission_that_is_missing(spawner: PlainSpawner) -> None:
    with tempfile.TemporaryDirectory() as folder:  # where everybody may come in
        os.chmod(folder, 0o755)
        tools = Tools(Path(folder), spawner, QUICK, undo=None)
        tools.folder.chmod(0o755)
        tools.file("closed", "x").chmod(0)
        tools.file("fixed", "x").chmod(0o444)
        with open_as_ordinary_user():
            assert is_failure(await tools("read", path="closed"), "PERMISSION_DENIED")
            assert is_failure(await tools("write", path="fixed", content="y"), "PERMISSION_DENIED")
        assert (tools.folder / "fixed").read_text() == "x"


@contextlib.contextmanager
def open_as_ordinary_user() -> Iterator[None]:
    """Root may read everything, so it is somebody else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.req("resident.tools.codes")
async def test_a_loop_of_links_is_refused(tools: Tools) -> None:
    (tools.folder / "a").symlink_to("b")
    (tools.folder / "b").symlink_to("a")
    assert (await tools("read", path="a")).code in ("PERMISSION_DENIED", "NOT_REGULAR_FILE")
    assert is_failure(await tools("read", path="a/x"), "PERMISSION_DENIED")


@pytest.mark.req("resident.tools.codes")
async def test_a_defect_in_a_tool_is_an_answer_too(tools: Tools, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def spawn(self, launch: object) -> Any:
            raise RuntimeError("no such luck")

    broken = Tools(tools.folder.parent, Broken(), QUICK)
    assert is_failure(await broken("bash", command="true"), "INTERNAL", "RuntimeError")
    assert "no such luck" in caplog.text


@pytest.mark.req("resident.tools.codes")
async def test_a_closed_spawner_is_an_answer_too(tmp_path: Path) -> None:
    async with PlainSpawner(QUICK) as spawner:
        tools = Tools(tmp_path, spawner, QUICK)
    assert is_failure(await tools("bash", command="true"), "INTERNAL", "closed")


@pytest.mark.req("resident.tools.codes")
async def test_a_tool_that_hangs_ends_with_its_deadline(tmp_path: Path, spawner: PlainSpawner) -> None:
    tools = Tools(tmp_path, spawner, QUICK.but(tool=0.1))
    assert is_failure(await tools("bash", command="sleep 60"), "TIMEOUT", "0.1")
