"""A package: its digest, its manifest, and what of a folder belongs to it (spec yoi 7)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.plugins.bounds import Bounds
from serai.plugins.package import BadArchive, compute_digest, open_files, pack, read
from serai.plugins.package_store import read_package
from tests.support.yoi.plugin_packages import files, write_folder, write_package
from tests.support.yoi.zip_files import Entry, build_zip

TOML = {"plugin.toml": b"schema_version = 1\n"}


@pytest.mark.req("yoi.conform.03")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({}, "1d22f437233d2727ae9ddf72c696fb0c435349ba05498b7dbe840c25e790c3f4"),
        (TOML, "a1c89a9c52258f8ede60750d4a6dcd3ffd71d912b5354aad865adbdb5b96947e"),
        ({**TOML, "hooks/a.md": b"hello", "b.txt": b""}, "e849b3d1899845abad5b10b13850cfb4c5f793cbadee251157376035ca05a55a"),
    ],
)
def test_the_digests_of_the_specification_come_out(content: dict[str, bytes], expected: str) -> None:
    assert compute_digest(content) == f"sha256:{expected}"
    assert compute_digest(dict(reversed(content.items()))) == f"sha256:{expected}"


@pytest.mark.req("yoi.edge.23")
def test_the_digest_orders_files_by_the_bytes_of_their_paths() -> None:
    from hashlib import sha256

    names = [
        "a/b",
        "a.b",
        "B",
        "b",
        "é",
        "z",
        "\uff5a",
        "\U0001f600",
    ]  # code points and UTF-16 have the last two the other way round
    expected = sha256(b"yoi-plugin-package-digest-v1\0")
    for name in sorted(name.encode() for name in names):
        expected.update(name + b"\0" + (1).to_bytes(8, "big") + sha256(b"x").digest())
    assert compute_digest(dict.fromkeys(names, b"x")) == f"sha256:{expected.hexdigest()}"


@given(
    st.dictionaries(st.sampled_from(["a", "b", "a/b", "ab"]), st.binary(max_size=4)),
    st.dictionaries(st.sampled_from(["a", "b", "a/b", "ab"]), st.binary(max_size=4)),
)
def test_different_files_have_different_digests(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert (compute_digest(one) == compute_digest(other)) == (one == other)


@pytest.mark.req("yoi.conform.05")
def test_the_digest_is_the_same_whatever_the_archive_looks_like() -> None:
    content = files()
    as_packed = open_files(read(pack(content)))
    without_crc = open_files(read(build_zip([Entry(name, data, crc=0) for name, data in reversed(content.items())])))
    deflated = open_files(read(build_zip([Entry(name, data, deflate=True) for name, data in content.items()])))
    assert as_packed.digest == without_crc.digest == deflated.digest == compute_digest(content)
    assert as_packed.manifest.id == "echo"


@pytest.mark.req("yoi.conform.01")
def test_a_package_has_a_manifest_at_its_root() -> None:
    with pytest.raises(BadArchive, match=r"plugin package is missing plugin\.toml"):
        open_files({"echo/plugin.toml": files()["plugin.toml"]})


@pytest.mark.req("yoi.conform.02")
def test_a_manifest_has_a_bound_of_its_own() -> None:
    content = files()
    room = 65_536 - len(content["plugin.toml"])
    content["plugin.toml"] += b"#" * (room - 1) + b"\n"
    assert open_files(content).manifest.id == "echo"
    content["plugin.toml"] += b"\n"
    with pytest.raises(BadArchive, match=r"plugin\.toml is larger than 65536 bytes") as raised:
        open_files(content)
    assert raised.value.kind == "bounds"


@pytest.mark.req("yoi.rule.047")
def test_a_folder_is_packed_without_what_belongs_to_its_making(tmp_path: Path) -> None:
    content = files() | {"hooks/a.md": b"hello", ".hidden": b"x"}
    folder = write_folder(tmp_path / "echo", content)
    for left_out in (
        "target/debug/x",
        "node_modules/y/z.js",
        ".git/HEAD",
        "__pycache__/extension.cpython-311.pyc",
        ".pytest_cache/README.md",
        "tests/__pycache__/test_echo.cpython-311.pyc",
        "echo.yoi-plugin",
        "hooks/target/x",
        "hooks/old.yoi-plugin",
    ):
        (folder / left_out).parent.mkdir(parents=True, exist_ok=True)
        (folder / left_out).write_bytes(b"x")
    (folder / "node_modules" / "link").symlink_to("/etc/passwd")  # nobody looks there
    os.mkfifo(folder / "pipe")
    (folder / "empty").mkdir()
    package = read_package(folder)
    assert dict(package.files) == content
    assert package.digest == open_files(read(pack(package.files))).digest


@pytest.mark.req("yoi.rule.047")
@pytest.mark.parametrize("name", ["a", "hooks/a", "target", "x.yoi-plugin"])
def test_a_folder_with_a_link_is_no_package(tmp_path: Path, name: str) -> None:
    folder = write_folder(tmp_path / "echo")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(folder / "plugin.toml")
    with pytest.raises(BadArchive, match="plugin directory contains a symlink entry") as raised:
        read_package(folder)
    assert raised.value.kind == "traversal"


@pytest.mark.req("yoi.conform.02")
@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        (Bounds(entries=3), "plugin package has more than 3 entries"),
        (Bounds(file=999), "plugin package entry is larger than 999 bytes"),
        (Bounds(expanded=1_376), "plugin package expands to more than 1376 bytes"),
    ],
)
def test_a_folder_has_the_same_bounds(tmp_path: Path, bounds: Bounds, text: str) -> None:
    folder = write_folder(tmp_path / "echo", files(a=bytes(1_000), b=b"x" * 20))
    assert read_package(folder, Bounds(entries=4, file=1_000, expanded=1_377)).manifest.id == "echo"
    with pytest.raises(BadArchive, match=text) as raised:
        read_package(folder, bounds)
    assert raised.value.kind == "bounds"


def test_a_folder_of_many_folders_is_not_walked_for_ever(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "echo")
    for number in range(50):
        (folder / f"{number}").mkdir()
    with pytest.raises(BadArchive, match="plugin package has more than 10 entries"):
        read_package(folder, Bounds(entries=10))


@pytest.mark.parametrize("make", ["missing", "pipe"])
def test_what_cannot_be_read_is_said(tmp_path: Path, make: str) -> None:
    path = tmp_path / "echo.yoi-plugin"
    if make == "pipe":
        os.mkfifo(path)
    with pytest.raises(BadArchive, match=r"not a regular file|No such file or directory") as raised:
        read_package(path)
    assert raised.value.kind == "io"


@pytest.mark.req("yoi.conform.02")
def test_no_more_of_a_file_is_read_than_a_package_may_have(tmp_path: Path) -> None:
    path = write_package(tmp_path)
    size = path.stat().st_size
    assert read_package(path, Bounds(package=size)).manifest.id == "echo"
    with pytest.raises(BadArchive, match=f"plugin package is larger than {size - 1} bytes"):
        read_package(path, Bounds(package=size - 1))
