"""Archives: what is read, what is refused, and that there is one reading only (spec yoi 7)."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serai.plugins.bounds import DEFAULT, UPSTREAM, Bounds
from serai.plugins.package import BadArchive, check_entry_path, compute_packed_size, pack, read
from tests.support.yoi.zip_files import Entry, build_zip

FILES = {"plugin.toml": b"schema_version = 1\n", "b.txt": b"", "hooks/a.md": b"hello"}
ESCAPES = "plugin package entry path escapes the archive root"
DISAGREES = "plugin package local header disagrees with the central directory"


def get_refusal(data: bytes, bounds: Bounds = DEFAULT) -> BadArchive:
    with pytest.raises(BadArchive) as raised:
        read(data, bounds)
    return raised.value


@pytest.mark.req("yoi.conform.01")
@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (build_zip(FILES, disks=1), "malformed", "plugin package spans several disks"),
        (build_zip([Entry("plugin.toml", disk=1)]), "malformed", "plugin package spans several disks"),
        (build_zip(FILES, zip64=True), "malformed", "plugin package uses unsupported ZIP64 structures"),
        (build_zip(FILES, count=0xFFFF), "malformed", "plugin package uses unsupported ZIP64 structures"),
        (build_zip([Entry("a", extra=b"\1\0\0\0")]), "malformed", "plugin package uses unsupported ZIP64 structures"),
        (build_zip([Entry("a", central_extra=b"UT\0\0\1\0\0\0")]), "malformed", "plugin package uses unsupported ZIP64 structures"),
        (b"", "malformed", "plugin package has no zip end record in its last 65557 bytes"),
        (b"PK\5\6", "malformed", "plugin package has no zip end record in its last 65557 bytes"),
        (build_zip(FILES) + b"x", "malformed", "plugin package has no zip end record in its last 65557 bytes"),
        (build_zip(FILES) + bytes(65_536), "malformed", "plugin package has no zip end record in its last 65557 bytes"),
        (build_zip([Entry("a", flags=0x0801)]), "malformed", "plugin package contains an encrypted entry"),
        (build_zip([Entry("a", flags=0x0840)]), "malformed", "plugin package contains an encrypted entry"),
        (build_zip([Entry("a", method=12)]), "malformed", "plugin package uses an unsupported zip compression method"),
        (build_zip([Entry("a", b"x", local_name="b")]), "malformed", DISAGREES),
        (build_zip([Entry("a", b"x", local_flags=0)]), "malformed", DISAGREES),
        (build_zip([Entry("a", b"x", local_method=8)]), "malformed", DISAGREES),
        (build_zip([Entry("a", b"x", local_size=2)]), "malformed", DISAGREES),
        (build_zip([Entry("a", b"x", local_crc=7)]), "malformed", DISAGREES),
        (build_zip([Entry("a", b"", flags=0x0808)]), "malformed", DISAGREES),  # the sizes come later
        (build_zip([Entry("a", mode=0o120777)]), "traversal", "plugin package contains a symlink entry"),
        (build_zip([Entry("a", mode=0o020666)]), "malformed", "plugin package contains an entry that is no regular file"),
        (build_zip([Entry("a", b"1"), Entry("a", b"2")]), "malformed", "plugin package contains duplicate normalized entry paths"),
        (build_zip([Entry(b"\xff")]), "malformed", "plugin package entry name is not UTF-8"),
        (build_zip(FILES, count=2), "malformed", "plugin package central directory is malformed"),
        (build_zip(FILES, count=4), "malformed", "plugin package central directory is malformed"),
        (b"before" + build_zip(FILES), "malformed", "plugin package central directory does not end at its end record"),
        (build_zip(FILES, gap=b"x"), "malformed", "plugin package entries overlap or leave a gap"),
        (
            build_zip([Entry("a", b"x", offset=0), Entry("b", b"x", offset=0)]),
            "malformed",
            "plugin package entries overlap or leave a gap",
        ),
    ],
)
def test_what_is_no_package_is_refused(data: bytes, kind: str, text: str) -> None:
    error = get_refusal(data)
    assert (error.kind, str(error)) == (kind, text)


@pytest.mark.req("yoi.conform.01")
@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "~/x", "a\\b", "a\0b", "C:/x", "c:x", "a//b", "./a", "a/.", "../a", "a/../b", "a/..", "//", "/", "../"],
)
def test_a_path_that_leads_out_of_the_archive_is_refused(name: str) -> None:
    assert str(get_refusal(build_zip([Entry(name, b"" if name.endswith("/") else b"x")]))) == ESCAPES
    with pytest.raises(BadArchive, match=ESCAPES):
        pack({name: b"x"})


@pytest.mark.req("yoi.edge.21")
def test_names_that_are_equal_once_normalised_are_duplicates() -> None:
    assert (
        str(get_refusal(build_zip([Entry("é", b"1"), Entry("e\u0301", b"2")])))
        == "plugin package contains duplicate normalized entry paths"
    )
    assert (
        str(get_refusal(build_zip([Entry("a", b"1"), Entry("a/", b"")])))
        == "plugin package contains duplicate normalized entry paths"
    )
    assert read(build_zip([Entry("a", b"1"), Entry("A", b"2")])) == {"a": b"1", "A": b"2"}


@pytest.mark.req("yoi.edge.21")
def test_an_end_record_in_a_comment_is_not_the_real_one() -> None:
    evil = build_zip({"plugin.toml": b"evil"})
    planted = build_zip(FILES, comment=evil)
    with zipfile.ZipFile(io.BytesIO(planted)) as file:  # which takes the last one
        assert file.read("plugin.toml") == b"evil"
    assert read(planted) == FILES
    moved = build_zip({"plugin.toml": b"evil"}, base=len(build_zip(FILES)))
    assert read(build_zip(FILES, comment=moved)) == FILES
    # and one within the content, whose comment would be the rest of the file
    inner = build_zip({"plugin.toml": b"evil"})[:-2]
    for rest in range(200):
        data = build_zip({"a": inner + struct.pack("<H", rest), "plugin.toml": b"good"})
        assert read(data)["plugin.toml"] == b"good"


@pytest.mark.req("yoi.rule.044")
def test_a_folder_of_its_own_is_skipped() -> None:
    data = build_zip([Entry("hooks/", mode=0o040755), Entry("plain/"), Entry("hooks/a.md", b"hello", mode=0o100644)])
    assert read(data) == {"hooks/a.md": b"hello"}
    assert str(get_refusal(build_zip([Entry("hooks/", b"x")]))) == "plugin package contains an entry that is no regular file"


@pytest.mark.req("yoi.conform.02")
def test_each_bound_holds_at_n_and_breaks_at_one_more() -> None:
    data = build_zip({"a": bytes(100), "b": bytes(50)})
    for bounds, text in (
        (Bounds(package=len(data)), f"plugin package is larger than {len(data) - 1} bytes"),
        (Bounds(entries=2), "plugin package has more than 1 entries"),
        (Bounds(file=100), "plugin package entry is larger than 99 bytes"),
        (Bounds(expanded=150), "plugin package expands to more than 149 bytes"),
    ):
        assert len(read(data, bounds)) == 2
        name = next(name for name in bounds.__struct_fields__ if getattr(bounds, name) != getattr(DEFAULT, name))
        error = get_refusal(data, Bounds(**{name: getattr(bounds, name) - 1}))
        assert (error.kind, str(error)) == ("bounds", text)


@pytest.mark.req("yoi.conform.02")
def test_the_numbers_are_those_of_the_specification() -> None:
    mib = 1024 * 1024
    assert (DEFAULT.packages, DEFAULT.package, DEFAULT.entries, DEFAULT.file, DEFAULT.expanded) == (
        128,
        32 * mib,
        512,
        32 * mib,
        64 * mib,
    )
    assert len(read(build_zip([Entry(f"{n}") for n in range(512)]))) == 512
    assert get_refusal(build_zip([Entry(f"{n}") for n in range(513)])).kind == "bounds"
    empty = len(build_zip({"a": b""}))
    assert read(build_zip({"a": bytes(32 * mib - empty)}))
    assert str(get_refusal(build_zip({"a": bytes(32 * mib - empty + 1)}))) == f"plugin package is larger than {32 * mib} bytes"


@pytest.mark.req("yoi.rule.043")
def test_deflated_entries_are_read_up_to_a_ratio_of_a_hundred() -> None:
    text = b"".join(b"%d," % n for n in range(3_000))
    assert read(build_zip([Entry("a", text, deflate=True)])) == {"a": text}
    packed = len(zlib.compress(b"x" * 1_000, 9, -15))
    for size, fits in ((packed * 100, True), (packed * 100 + 1, False)):
        entry = Entry("a", b"x" * 1_000, deflate=True, size=size)
        assert (get_refusal(build_zip([entry])).kind == "malformed") is fits  # then the size is just not true
    bomb = build_zip([Entry("a", bytes(10_000_000), deflate=True)])
    assert str(get_refusal(bomb)) == "plugin package entry is compressed by more than a factor of 100"


@pytest.mark.req("yoi.rule.043")
def test_the_origins_rules_are_a_preset() -> None:
    mib = 1024 * 1024
    assert (UPSTREAM.package, UPSTREAM.file, UPSTREAM.ratio) == (16 * mib, 8 * mib, 0)
    error = get_refusal(build_zip([Entry("a", b"hello hello hello", deflate=True)]), UPSTREAM)
    assert str(error) == "plugin package uses an unsupported zip compression method"
    assert read(build_zip({"a": bytes(8 * mib)}), UPSTREAM)
    assert get_refusal(build_zip({"a": bytes(8 * mib + 1)}), UPSTREAM).kind == "bounds"


@pytest.mark.req("yoi.rule.043")
@pytest.mark.parametrize("tail", [b"", b"more"])
def test_an_entry_that_inflates_to_another_size_is_refused_without_being_inflated(tail: bytes) -> None:
    lying = build_zip([Entry("a", bytes(50_000_000), deflate=True, size=1_000, raw_tail=tail)])
    tracemalloc.start()
    try:
        assert str(get_refusal(lying)) == "plugin package entry size disagrees with its content"
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.req("yoi.rule.046", "yoi.conform.05")
def test_a_crc_is_true_or_zero() -> None:
    assert read(build_zip([Entry("a", b"hello", crc=0)])) == {"a": b"hello"}
    assert str(get_refusal(build_zip([Entry("a", b"hello", crc=1)]))) == "plugin package entry does not match its CRC"


@pytest.mark.req("yoi.rule.046")
def test_zipfile_takes_what_pack_writes_and_read_what_zipfile_writes() -> None:
    with zipfile.ZipFile(io.BytesIO(pack(FILES))) as file:
        assert file.testzip() is None
        assert {name: file.read(name) for name in file.namelist()} == FILES
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.mkdir("hooks")
        for name, content in FILES.items():
            file.writestr(name, content)
    assert read(out.getvalue()) == FILES


@pytest.mark.req("yoi.conform.04")
def test_packing_gives_the_same_bytes_each_time_with_nothing_of_the_machine_in_them() -> None:
    data = pack(FILES)
    assert data == pack(dict(reversed(FILES.items())))
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        assert file.comment == b""
        assert [info.filename for info in file.infolist()] == ["b.txt", "hooks/a.md", "plugin.toml"]
        for info in file.infolist():
            assert (info.compress_type, info.flag_bits, info.extract_version, info.create_version) == (0, 0x0800, 20, 20)
            assert (info.external_attr, info.internal_attr, info.extra, info.comment) == (0, 0, b"", b"")
    at = data.index(b"PK\1\2")
    assert data[10:14] == data[at + 12 : at + 16] == bytes(4)  # time and date


paths = st.lists(
    st.text(st.characters(exclude_characters="/\\\0", exclude_categories=["Cs"]), min_size=1), min_size=1, max_size=3
).map("/".join)


def good(name: str) -> bool:
    try:
        return bool(check_entry_path(name))
    except BadArchive:
        return False


@given(st.dictionaries(paths.filter(good), st.binary(max_size=200), max_size=6))
def test_what_is_packed_is_read_again(files: dict[str, bytes]) -> None:
    if len({normalize("NFC", name) for name in files}) < len(files):
        with pytest.raises(BadArchive, match="duplicate"):
            pack(files)
        return
    data = pack(files)
    assert read(data) == files
    assert pack(read(data)) == data
    assert compute_packed_size(files) == len(data)


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=60).map(lambda tail: build_zip(FILES)[: -len(tail) or None] + tail)))
@example(build_zip(FILES)[-22:])
def test_any_bytes_are_files_or_refused(data: bytes) -> None:
    with suppress(BadArchive):
        assert all(good(name) for name in read(data))


@pytest.mark.req("yoi.edge.21")
@pytest.mark.parametrize(
    "make", [pack, lambda files: build_zip([Entry(name, content, deflate=True) for name, content in files.items()])]
)
def test_no_changed_byte_gives_other_content(make: Callable[[dict[str, bytes]], bytes]) -> None:
    """Each byte of it, each with several others in its place."""
    data = bytearray(make(FILES))
    for at, was in enumerate(bytes(data)):
        for change in (0x01, 0x08, 0x20, 0x80, 0xFF, was):
            data[at] = was ^ change
            try:
                found = read(bytes(data))
            except BadArchive:
                continue
            finally:
                data[at] = was
            assert found == FILES, (at, change)


def test_many_would_be_end_records_cost_little() -> None:
    fake = b"".join(struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0, 0, 0, 22 * n, 22 * (1_999 - n)) for n in range(2_000))
    assert get_refusal(b"x" * 22 + fake[22:]).kind == "malformed"
