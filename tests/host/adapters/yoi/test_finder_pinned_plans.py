"""A plan that a session has kept, held to what the person grants now and to what the package says of itself (spec yoi 10.2)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.errors import BadManifest, BadSession, BadSettings
from serai.host.adapters.yoi.finder import build_plan
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.package_store import keep_copy, load_package
from tests.support.agents.scripted_models import Answers, reply
from tests.support.app.apps import build_environ, create_app, open_app, sessions_of
from tests.support.host.guest_folders import Harness
from tests.support.yoi import components
from tests.support.yoi.plugin_packages import enable, files, format_toml, grant, write_package

ASKS = b'\n[[permissions]]\nkind = "host_api"\napi = "fs"\n'
WIDE = {"root": "/", "operations": ["read", "list", "write"]}
NARROW = {"root": "/srv/notes", "operations": ["list"]}


def reader(**about: Any) -> dict[str, bytes]:
    """It asks for files."""
    content = files(**about)
    return {**content, "plugin.toml": content["plugin.toml"] + ASKS}


ECHO = reader()


def grant_files(*fs: dict[str, Any], content: dict[str, bytes] = ECHO, identity: str = "user:echo", **more: Any) -> dict[str, Any]:
    one = grant(identity, content, **more)
    one["grants"]["permissions"].append({"kind": "host_api", "api": "fs"})
    one["grants"]["fs"] = list(fs)
    return one


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    (tmp_path / "project").mkdir()
    return Harness(tmp_path)


def build_session_plan(harness: Harness, *entries: dict[str, Any]) -> dict[str, Any]:
    """What a session keeps that begins with these, as it comes out of its file."""
    write_package(harness.user, content=ECHO)
    kept: dict[str, Any] = json.loads(msgspec.json.encode(build_plan(harness.find(config=enable(*entries)).guests)))
    return kept


def restore(harness: Harness, plan: dict[str, Any], *entries: dict[str, Any]) -> ResolvedPlugin:
    [guest] = harness.find(config=enable(*entries, resolved=plan)).guests
    record: ResolvedPlugin = guest.plan
    return record


def folders(record: ResolvedPlugin) -> list[dict[str, Any]]:
    return [{"root": one.root, "operations": list(one.operations)} for one in record.grants.fs]


# -- what is granted now


def test_a_grant_that_was_narrowed_is_narrow_in_a_session_that_goes_on(harness: Harness) -> None:
    plan = build_session_plan(harness, grant_files(WIDE, config={"a": 1}))
    assert folders(restore(harness, plan, grant_files(WIDE))) == [WIDE]
    now = restore(harness, plan, grant_files(NARROW, config={"a": 2}))
    assert (folders(now), now.config) == ([NARROW], {"a": 2})
    assert folders(restore(harness, plan, grant_files(WIDE), grant_files(NARROW))) == [NARROW]  # the last counts
    nothing = grant("user:echo", ECHO)
    nothing["grants"]["permissions"] = []
    assert restore(harness, plan, nothing).grants.permissions == ()


def test_contributions_that_were_left_out_since_are_left_out_in_a_session_that_goes_on(harness: Harness) -> None:
    service = b'\n[[services]]\nname = "svc"\ndescription = "d"\n'
    instance = ECHO["plugin.toml"].replace(b"plugin/tool@", b"plugin/instance@")
    content = {**ECHO, "plugin.toml": instance + service}
    write_package(harness.user, content=content)
    both = grant_files(WIDE, content=content)
    plan = build_plan(harness.find(config=enable(both)).guests)
    assert plan is not None
    assert restore(harness, plan, both).enabled_surfaces == ("service", "tool", "wasm")
    assert restore(harness, plan, {**both, "surfaces": ["tool"]}).enabled_surfaces == ("tool",)


def test_what_was_granted_to_other_contents_since_is_nothing_to_a_session_that_goes_on(harness: Harness) -> None:
    plan = build_session_plan(harness, grant_files(NARROW))
    newer = reader(version="0.2.0")
    now = restore(harness, plan, grant_files(WIDE, content=newer, version="0.2.0"))
    assert (now.version, folders(now)) == ("0.1.0", [NARROW])


def test_a_narrowed_grant_counts_also_beside_one_for_newer_contents_and_an_enablement_without_any_gives_none(
    harness: Harness,
) -> None:
    plan = build_session_plan(harness, grant_files(WIDE))
    newer = grant_files(WIDE, content=reader(version="0.2.0"), version="0.2.0")
    assert folders(restore(harness, plan, grant_files(NARROW), newer)) == [NARROW]
    assert restore(harness, plan, {"id": "user:echo"}).grants.empty


async def test_an_app_goes_on_with_the_narrowed_grant(tmp_path: Path) -> None:
    content = reader(component=components.tool())
    write_package(tmp_path / "home" / "guests", content=content)
    more: dict[str, Any] = {}
    for fs in (WIDE, NARROW):
        (tmp_path / "home" / "plugins.toml").write_text(format_toml(enable(grant_files(fs, content=content))))
        async with open_app(tmp_path, answers=Answers([reply("done")]), installed=True, **more) as app:
            assert not app.host.report.failed, app.host.report.to_lines()
            assert folders(app.host.guests["yoi:echo"].manifest.plan) == [fs]
            await app.submit("do it")
        more = {"session": "latest"}


# -- what the package says


@pytest.mark.parametrize("copied", [False, True])
def test_a_record_with_another_manifest_than_its_package_is_refused(harness: Harness, copied: bool) -> None:
    """A session's file may have been written by somebody else: what was granted to the contents is not for what that says."""
    plan = build_session_plan(harness, grant_files(NARROW))
    record = restore(harness, plan, grant_files(NARROW))
    if copied:
        keep_copy(load_package(record, harness.environ), harness.environ)
        (harness.user / "echo.yoi-plugin").unlink()
    assert load_package(record, harness.environ).digest == record.digest
    [tool] = plan["records"][0]["manifest"]["tools"]
    tool["name"] = "bash"
    evil = restore(harness, plan, grant_files(NARROW))
    assert [one.name for one in evil.manifest.tools] == ["bash"]
    with pytest.raises(BadManifest, match=": resolved plugin record does not fit its package$"):
        load_package(evil, harness.environ)


# -- where it lies


SHORT = ["", "x", "echo.yoi-plugin", "../x", "/x", "/guests/x", "/.serai/guests/x"]


def use_short_path(plan: dict[str, Any], path: str) -> dict[str, Any]:
    [record] = plan["records"]
    record |= {"package_path": path, "source": "project", "identity": "project:echo"}
    record["grants"]["id"] = "project:echo"
    return plan


@pytest.mark.parametrize("path", SHORT)
def test_a_path_that_is_in_no_project_is_told_as_such(harness: Harness, path: str) -> None:
    plan = use_short_path(build_session_plan(harness, grant_files(NARROW)), path)
    with pytest.raises(BadSettings, match="resolved plugin record has no path of a package"):
        harness.find(config=enable(grant_files(NARROW, identity="project:echo"), resolved=plan))


@pytest.mark.parametrize("path", ["", "x/y/z/a/b"])
def test_a_path_that_is_not_absolute_is_nobodys(harness: Harness, path: str) -> None:
    plan = build_session_plan(harness, grant_files(NARROW))
    plan["records"][0]["package_path"] = path
    with pytest.raises(BadSettings, match="resolved plugin record has no path of a package"):
        harness.find(config=enable(grant_files(NARROW), resolved=plan))


@pytest.mark.parametrize("path", SHORT)
async def test_a_session_with_such_a_path_is_not_gone_on_with(tmp_path: Path, path: str) -> None:
    (tmp_path / "project").mkdir()
    plan = use_short_path(build_session_plan(Harness(tmp_path), grant_files(NARROW)), path)
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / "plugins.toml").write_text(format_toml(enable(grant_files(NARROW, identity="project:echo"))))
    with sessions_of(tmp_path).create(os.fspath(tmp_path / "project"), agent="resident") as session:
        session.append_user("hello")
        session.keep_plugins(plan)
    app = create_app(tmp_path, answers=Answers([reply("done")]), session="latest", environ=build_environ(tmp_path))
    with pytest.raises(BadSession, match="what it keeps of its plugins cannot be read: .*no path of a package"):
        await app.open()
    await app.close()
