"""Stores: what is discovered there, and what is said of the rest (spec yoi 9)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serai.host.adapters.yoi import finder
from serai.host.adapters.yoi.finder import discover
from serai.limits import MIB
from serai.plugins.bounds import DEFAULT, Bounds
from serai.plugins.resolution import PackageDiagnostic
from tests.support.yoi.plugin_packages import files, write_folder, write_package
from tests.support.yoi.zip_files import Entry, build_zip


def kinds(told: tuple[PackageDiagnostic, ...]) -> list[tuple[str, str | None]]:
    return [(one.kind, one.package) for one in told]


@pytest.mark.req("yoi.rule.053")
def test_packages_are_files_of_one_ending_and_folders_and_a_missing_store_is_nothing(tmp_path: Path) -> None:
    assert discover([("user", tmp_path / "nowhere")]) == ((), ())
    store = tmp_path / "guests"
    write_package(store, "b.yoi-plugin", id="one")
    write_package(store, "c.zip", id="other")
    write_package(store, ".hidden.yoi-plugin", id="hidden")
    write_folder(store / "a", id="two")
    write_package(store / "inner", "d.yoi-plugin", id="deeper")
    found, told = discover([("user", store)])
    assert [(one.label, one.identity, one.path) for one in found] == [
        ("a", "user:two", str(store / "a")),
        ("b.yoi-plugin", "user:one", str(store / "b.yoi-plugin")),
    ]
    assert told == ()


@pytest.mark.req("yoi.rule.056")
def test_who_a_package_is_says_its_store_and_its_manifest(tmp_path: Path) -> None:
    write_package(tmp_path / "mine", "weather.yoi-plugin", id="echo")
    write_package(tmp_path / "theirs", "x.yoi-plugin", id="echo")
    found, told = discover([("user", tmp_path / "mine"), ("project", tmp_path / "theirs")])
    assert [one.identity for one in found] == ["user:echo", "project:echo"]
    assert told == ()


@pytest.mark.req("yoi.rule.054", "yoi.conform.02")
def test_a_store_is_sorted_by_path_and_cut(tmp_path: Path) -> None:
    for number in range(4):
        write_package(tmp_path, f"{number}.yoi-plugin", id=f"p{number}")
    found, told = discover([("user", tmp_path)], Bounds(packages=4))
    assert ([one.label for one in found], told) == ([f"{number}.yoi-plugin" for number in range(4)], ())
    found, told = discover([("user", tmp_path)], Bounds(packages=3))
    assert [one.label for one in found] == [f"{number}.yoi-plugin" for number in range(3)]
    assert [(one.kind, one.phase, one.source) for one in told] == [("bounds", "discovery", "user")]


@pytest.mark.req("yoi.conform.06")
@pytest.mark.parametrize("as_folder", [False, True])
def test_a_link_out_of_the_store_is_refused_and_one_within_is_not(tmp_path: Path, as_folder: bool) -> None:
    store, name = tmp_path / "store", "a" if as_folder else "a.yoi-plugin"
    outside = write_folder(tmp_path / "elsewhere") if as_folder else write_package(tmp_path, "elsewhere.yoi-plugin")
    inside = write_folder(store / "real", id="real") if as_folder else write_package(store, "real.yoi-plugin", id="real")
    (store / name).symlink_to(outside)
    found, [told] = discover([("user", store)])
    assert [one.label for one in found] == [inside.name]
    assert (told.kind, told.package, told.message) == ("traversal", name, "plugin package path escapes its source store")
    inside.rename(inside.with_name(f".{inside.name}"))
    (store / name).unlink()
    (store / name).symlink_to(f".{inside.name}")
    found, told_now = discover([("user", store)])
    assert ([one.identity for one in found], told_now) == (["user:real"], ())
    elsewhere = tmp_path / "linked"
    elsewhere.symlink_to(store)  # a store may be one itself
    assert [one.identity for one in discover([("user", elsewhere)])[0]] == ["user:real"]


@pytest.mark.req("yoi.conform.06")
def test_a_link_that_leads_nowhere_or_in_circles_hurts_itself_alone(tmp_path: Path) -> None:
    write_package(tmp_path, "good.yoi-plugin")
    (tmp_path / "gone.yoi-plugin").symlink_to("nowhere")
    (tmp_path / "self.yoi-plugin").symlink_to("self.yoi-plugin")
    found, told = discover([("user", tmp_path)])
    assert [one.label for one in found] == ["good.yoi-plugin"]
    assert kinds(told) == [("io", "gone.yoi-plugin"), ("io", "self.yoi-plugin")]


@pytest.mark.req("yoi.conform.07")
def test_twins_both_stay_and_both_are_told_of(tmp_path: Path) -> None:
    write_package(tmp_path, "a.yoi-plugin")
    write_folder(tmp_path / "b", version="0.2.0")
    write_package(tmp_path, "c.yoi-plugin", id="other")
    found, told = discover([("user", tmp_path)])
    assert [one.identity for one in found] == ["user:echo", "user:echo", "user:other"]
    assert [(one.kind, one.identity, one.package) for one in told] == [
        ("duplicate", "user:echo", "a.yoi-plugin"),
        ("duplicate", "user:echo", "b"),
    ]


BROKEN = {
    "no zip": (b"PK nothing", "malformed", "discovery"),
    "no manifest": (build_zip({"a": b""}), "malformed", "discovery"),
    "no TOML": (build_zip({"plugin.toml": b"= s3cret ="}), "malformed", "manifest"),
    "another time": (build_zip({"plugin.toml": b"schema_version = 2"}), "api", "manifest"),
    "no component": (build_zip({"plugin.toml": files()["plugin.toml"]}), "malformed", "manifest"),
}


@pytest.mark.req("yoi.conform.08")
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_beside_a_good_one_is_one_diagnostic(tmp_path: Path, case: str) -> None:
    content, kind, phase = BROKEN[case]
    write_package(tmp_path, "good.yoi-plugin")
    (tmp_path / "broken.yoi-plugin").write_bytes(content)
    found, [told] = discover([("project", tmp_path)])
    assert [one.identity for one in found] == ["project:echo"]
    assert (told.kind, told.phase, told.source, told.package) == (kind, phase, "project", "broken.yoi-plugin")
    assert "s3cret" not in told.message


@pytest.mark.req("yoi.rule.055")
def test_a_projects_store_is_read_up_to_a_size_and_the_users_own_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a project nobody trusts yet everything is expanded at every look."""
    assert finder._PROJECTS == 256 * MIB
    zeros = {"zeros": bytes(50_000)}
    contents = [{**files(id=f"p{number}"), **zeros} for number in range(4)]
    for number, content in enumerate(contents):  # what counts is what comes out of the archive
        entries = [Entry(name, data, deflate=name == "zeros") for name, data in content.items()]
        (tmp_path / f"{number}.yoi-plugin").write_bytes(build_zip(entries))
        assert (tmp_path / f"{number}.yoi-plugin").stat().st_size < 5_000
    write_folder(tmp_path / "folder", {**files(id="p9"), **zeros})
    bounds = Bounds(ratio=5000)
    most = 2 * sum(map(len, contents[0].values()))
    for size, read in ((most + 1, 3), (most, 2), (1, 1)):
        monkeypatch.setattr(finder, "_PROJECTS", size)
        found, told = discover([("project", tmp_path)], bounds)
        names = [f"{number}.yoi-plugin" for number in range(4)] + ["folder"]
        assert [one.label for one in found] == names[:read]
        assert kinds(told) == [("bounds", name) for name in names[read:]]
        message = f"plugin store has more than {size} bytes of packages: this one is left out"
        assert {(one.phase, one.source, one.message) for one in told} == {("discovery", "project", message)}
        found, told = discover([("user", tmp_path)], bounds)
        assert ([one.label for one in found], told) == (names, ())


def test_a_broken_package_of_a_project_counts_as_all_that_it_could_have_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [Entry(name, data, crc=1 if name == "plugin.toml" else None) for name, data in files().items()]
    for number in range(2):  # all of it is expanded before it is known to be broken
        (tmp_path / f"{number}.yoi-plugin").write_bytes(build_zip(entries))
    write_package(tmp_path, "good.yoi-plugin")
    could = DEFAULT.ratio * len(build_zip(entries))
    monkeypatch.setattr(finder, "_PROJECTS", 2 * could)
    found, told = discover([("project", tmp_path)])
    assert found == ()
    assert kinds(told)[-1] == ("bounds", "good.yoi-plugin")
    assert len(discover([("user", tmp_path)])[0]) == 1
    monkeypatch.setattr(finder, "_PROJECTS", 2 * could + 1)
    assert len(discover([("project", tmp_path)])[0]) == 1


@pytest.mark.req("yoi.conform.08")
def test_broken_packages_that_are_small_hide_no_good_one(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number}.yoi-plugin").write_bytes(b"")
    write_package(tmp_path, "good.yoi-plugin")
    assert [one.label for one in discover([("project", tmp_path)])[0]] == ["good.yoi-plugin"]


def test_discovery_writes_nothing(tmp_path: Path) -> None:
    write_package(tmp_path / "store", "a.yoi-plugin")
    write_folder(tmp_path / "store" / "b", id="two", component=b"(component")  # no such thing, and nobody tries
    everything = [(path, path.lstat().st_mtime_ns) for path in sorted(tmp_path.rglob("*"))]
    for path in tmp_path.rglob("*"):
        os.chmod(path, 0o500 if path.is_dir() else 0o400)
    found, told = discover([("user", tmp_path / "store")])
    for path in tmp_path.rglob("*"):
        os.chmod(path, 0o700)
    assert (len(found), told) == (2, ())
    assert [(path, path.lstat().st_mtime_ns) for path in sorted(tmp_path.rglob("*"))] == everything
