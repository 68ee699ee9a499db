"""The records of boxes: durable, private, and shared by all processes of a user."""

from __future__ import annotations

import os
import sqlite3
import stat
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread

import pytest

from serai.boxes.backend import BoxResources
from serai.boxes.box_records import NAME, BoxRecord, BoxStore, KeyFile, check_id, format_time, hash_token, make_token, now
from serai.boxes.hooks import Hook
from serai.errors import BadSettings, BoxRefused, NotWritten

STATES = {"mint": '{"token": "t-1"}'}


def record(box_id: str = "web", **changes: object) -> BoxRecord:
    token = make_token()
    plain = BoxRecord(
        token_hash=hash_token(token), generation=os.urandom(8).hex(), box_id=box_id, backend="namespaces", created_at=now()
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> BoxStore:
    return BoxStore(str(tmp_path / "boxes"))


@pytest.mark.req("hooks.scenario.store-01", "hooks.rule.5-store")
@pytest.mark.parametrize("states", [STATES, {}], ids=["with state", "without"])
def test_a_record_is_read_back_as_it_was_written(store: BoxStore, states: dict[str, str]) -> None:
    hooks = (Hook("/bin/mint", "mint", {"A": "b"}, env_clear=True), Hook("/bin/other"))
    wanted = record(
        hook_state=states, hooks=hooks, env={"LANG": "C"}, kept=True, expires_at=12.5, rootfs="/tree", description="d",
        allowance=BoxResources(memory=1 << 20, cpus=0.5, pids=9),
    )  # fmt: skip
    store.reserve(wanted)
    found = store.get("web")
    assert found is not None
    assert replace(found, hooks=tuple(found.hooks), hooks_done=tuple(found.hooks_done)) == wanted
    [raw] = sqlite3.connect(store.path).execute("SELECT hook_state FROM boxes").fetchone()
    assert raw == ('{"mint": "{\\"token\\": \\"t-1\\"}"}' if states else None)
    store.close()


@pytest.mark.req("hooks.rule.5-store")
def test_the_file_is_in_wal_mode_in_a_private_folder(store: BoxStore) -> None:
    folder = os.path.dirname(store.path)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert store._db.rows.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert store._db.rows.execute("PRAGMA busy_timeout").fetchone()[0] == 5000
    assert store._db.rows.execute("PRAGMA synchronous").fetchone()[0] == 2  # full: durable before effect
    store.close()


@pytest.mark.req("hooks.scenario.store-03")
def test_its_files_are_for_this_user_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = BoxStore(str(tmp_path / "boxes"))
        store.reserve(record())
        names = sorted(path.name for path in (tmp_path / "boxes").iterdir())
        assert names == [NAME, f"{NAME}-shm", f"{NAME}-wal"]
        assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "boxes").iterdir()} == {0o600}
        store.close()
    finally:
        os.umask(before)


@pytest.mark.req("hooks.scenario.store-03")
def test_files_and_a_folder_that_others_may_read_are_closed_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "boxes"
    first = BoxStore(str(folder))  # still open: so its journal is there as well
    first.reserve(record())
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    second = BoxStore(str(folder))
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.iterdir()]} == {
        "boxes": 0o700, NAME: 0o600, f"{NAME}-shm": 0o600, f"{NAME}-wal": 0o600,
    }  # fmt: skip
    assert [box.box_id for box in second.list_all()] == ["web"]
    first.close()
    second.close()


@pytest.mark.req("hooks.scenario.store-02")
def test_a_deleted_record_is_gone(store: BoxStore) -> None:
    box = record()
    store.reserve(box)
    store.delete(box.generation)
    assert store.get("web") is None
    assert store.list_all() == []
    store.close()


@pytest.mark.req("hooks.scenario.store-04")
def test_an_older_file_gets_the_columns_that_it_lacks_and_keeps_its_rows(tmp_path: Path) -> None:
    folder = tmp_path / "boxes"
    folder.mkdir()
    with sqlite3.connect(folder / NAME) as db:
        db.execute(
            "CREATE TABLE boxes (token_hash TEXT PRIMARY KEY, instance_id TEXT, box_id TEXT, created_at TEXT, hook_state TEXT)"
        )
        db.execute("INSERT INTO boxes VALUES ('h', 'g', 'old', '2026-01-01T00:00:00.000000000Z', '{\"k\": \"s\"}')")
    db.close()
    store = BoxStore(str(folder))
    found = store.get("old")
    assert found is not None
    assert (found.generation, found.lifecycle, found.hook_state, found.hooks_done, found.kept) == (
        "g",
        "running",
        {"k": "s"},
        [],
        False,
    )
    store.reserve(record("new"))
    assert [box.box_id for box in store.list_all()] == ["new", "old"]
    store.close()


@pytest.mark.req("hooks.naive.26", "hooks.scenario.create-05")
def test_an_id_is_taken_by_a_living_box_and_by_one_being_made_in_any_letter_case(store: BoxStore) -> None:
    made = record("Web")
    store.reserve(made)
    with pytest.raises(BoxRefused, match='box ID "web" is already being created; choose a different box ID'):
        store.reserve(record("web"))
    store.register(made.generation)
    with pytest.raises(BoxRefused, match='box ID "WEB" is already in use on "namespaces"; choose a different box ID'):
        store.reserve(record("WEB"))
    store.close()


@pytest.mark.req("hooks.scenario.create-07")
def test_of_many_that_take_one_id_at_once_exactly_one_wins(tmp_path: Path) -> None:
    stores = [BoxStore(str(tmp_path / "boxes")) for _ in range(8)]  # as eight processes have them
    together, outcomes = Barrier(8), []

    def take(store: BoxStore) -> None:
        together.wait()
        try:
            store.reserve(record())
            outcomes.append("won")
        except BoxRefused:
            outcomes.append("lost")

    threads = [Thread(target=take, args=[store]) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert sorted(outcomes) == ["lost"] * 7 + ["won"]


@pytest.mark.req("hooks.rule.3.3-max-boxes")
def test_more_boxes_than_allowed_are_refused_and_tombstones_do_not_count(store: BoxStore) -> None:
    first, second = record("a"), record("b")
    store.reserve(first, 2)
    store.reserve(second, 2)
    with pytest.raises(BoxRefused, match=r"box limit reached \(2 boxes already running\); destroy a box before creating another"):
        store.reserve(record("c"), 2)
    store.change(first.generation, lifecycle="terminated")
    store.reserve(record("c"), 2)
    store.close()


@pytest.mark.req("hooks.scenario.create-08")
def test_a_new_box_replaces_the_tombstone_of_its_id(store: BoxStore) -> None:
    old, other, new = record("web", created_at="2026-01-01"), record("other"), record("web")
    for box in (old, other):
        store.reserve(box)
        store.change(box.generation, lifecycle="terminated")
    store.reserve(new)
    store.register(new.generation)
    assert {box.generation for box in store.list_all()} == {new.generation, other.generation}
    store.close()


@pytest.mark.req("hooks.scenario.sync-10", "hooks.naive.27")
def test_of_several_records_of_an_id_the_living_one_is_found_and_a_generation_only_in_full(store: BoxStore) -> None:
    dead = record("web", created_at="2026-02-02")
    store.reserve(dead)
    store.change(dead.generation, lifecycle="terminated")
    living = record("web", created_at="2026-01-01")
    store.reserve(living)
    found = store.get("web")
    assert found is not None
    assert found.generation == living.generation
    older = store.get(dead.generation)
    assert older is not None
    assert older.generation == dead.generation
    assert store.get(dead.generation[:12]) is None
    assert store.get("") is None
    store.close()


def test_of_several_tombstones_the_newest_is_found_then_the_smallest_token(store: BoxStore) -> None:
    boxes = [record(created_at=when, token_hash=token) for when, token in (("1", "a"), ("2", "c"), ("2", "b"))]
    for box in boxes:
        store.reserve(box)
        store.change(box.generation, lifecycle="terminated")
    found = store.get("web")
    assert found is not None
    assert found.token_hash == "b"
    store.close()


def test_a_box_is_claimed_by_one_only(tmp_path: Path) -> None:
    one, other = BoxStore(str(tmp_path / "boxes")), BoxStore(str(tmp_path / "boxes"))
    box = record(owner="dead")
    one.reserve(box)
    assert one.claim(box.generation, "dead", "one")
    assert not other.claim(box.generation, "dead", "other")
    found = other.get("web")
    assert found is not None
    assert found.owner == "one"
    one.close()
    other.close()


@pytest.mark.req("hooks.rule.3.1-token", "hooks.scenario.create-01")
def test_a_token_has_32_random_bytes_and_only_its_hash_is_kept(store: BoxStore, tmp_path: Path) -> None:
    token = make_token()
    assert len(bytes.fromhex(token)) == 32
    assert token != make_token()
    box = record(token_hash=hash_token(token))
    store.reserve(box)
    store.close()
    assert len(box.token_hash) == 64
    files = b"".join(path.read_bytes() for path in (tmp_path / "boxes").iterdir())
    assert box.token_hash.encode() in files
    assert token.encode() not in files


@pytest.mark.req("hooks.rule.3.1-box-id")
@pytest.mark.parametrize("box_id", ["a", "0", "web-1", "a" * 63, "a--b"])
def test_a_good_id(box_id: str) -> None:
    check_id(box_id)


@pytest.mark.req("hooks.rule.3.1-box-id", "hooks.scenario.create-09")
@pytest.mark.parametrize("box_id", ["-a", "a-", "A", "a_b", "a.b", "a" * 64, "ü", "a\n", "../a", "a b", "²"])
def test_a_bad_id_is_refused(box_id: str) -> None:
    with pytest.raises(BoxRefused, match="must be a valid hostname"):
        check_id(box_id)
    with pytest.raises(BoxRefused, match="a box ID is required"):
        check_id("")


@pytest.mark.req("hooks.rule.5-encrypted")
def test_with_a_key_states_variables_and_hooks_are_encrypted_at_rest(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    store = BoxStore(str(tmp_path / "boxes"), KeyFile(str(key)))
    box = record(hook_state={"mint": "very-secret"}, env={"A": "hidden-value"}, hooks=[Hook("/bin/mint", env={"B": "private"})])
    store.reserve(box)
    found = store.get("web")
    assert found is not None
    assert (found.hook_state, found.env, list(found.hooks)) == (box.hook_state, box.env, box.hooks)
    store.close()
    files = b"".join(path.read_bytes() for path in (tmp_path / "boxes").iterdir())
    assert b"web" in files
    for secret in (b"very-secret", b"hidden-value", b"private"):
        assert secret not in files
    without = BoxStore(str(tmp_path / "boxes"))
    without.reserve(record("other"))  # one box that cannot be read does not keep the others
    assert {box.box_id: box.unreadable.partition(": ")[2] for box in without.list_all()} == {
        "web": "the hook state of a box is encrypted and no key is configured", "other": "",
    }  # fmt: skip
    without.close()
    key.write_bytes(os.urandom(32))
    other = BoxStore(str(tmp_path / "boxes"), KeyFile(str(key)))
    assert "cannot be decrypted" in str([box.unreadable for box in other.list_all()])
    other.close()


@pytest.mark.parametrize(
    ("content", "mode", "wrong"),
    [(b"x" * 31, 0o600, "fewer than 32"), (b"x" * 32, 0o640, "read by others"), (None, 0, "cannot be read")],
)
def test_a_bad_key_file_is_told(tmp_path: Path, content: bytes | None, mode: int, wrong: str) -> None:
    key = tmp_path / "key"
    if content is not None:
        key.write_bytes(content)
        key.chmod(mode)
    with pytest.raises(BadSettings, match=wrong):
        KeyFile(str(key)).seal("text", "about")


def test_a_sealed_text_is_good_for_its_own_box_only(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    sealer = KeyFile(str(key))
    sealed = sealer.seal("text", "this box")
    assert sealer.open(sealed, "this box") == "text"
    with pytest.raises(NotWritten, match="cannot be decrypted"):
        sealer.open(sealed, "another")


def test_a_store_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "boxes").mkdir()
    (tmp_path / "boxes" / NAME).write_text("this is no database, and long enough to be seen as none" * 9)
    with pytest.raises(NotWritten, match="cannot be opened"):
        BoxStore(str(tmp_path / "boxes"))


def test_moments_have_one_length_and_sort() -> None:
    assert format_time(1_700_000_000_000_000_007) == "2023-11-14T22:13:20.000000007Z"
    assert format_time(5) < format_time(1_000_000_000) < now()


def test_what_may_be_secret_is_not_shown() -> None:
    box = record(hook_state={"mint": "very-secret"}, env={"A": "hidden-value"}, hooks=[Hook("/bin/mint", env={"B": "private"})])
    for text in (repr(box), str(box.to_json())):
        assert not any(secret in text for secret in ("very-secret", "hidden-value", "private"))
