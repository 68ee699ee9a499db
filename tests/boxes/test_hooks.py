"""The runner: order, states, roll-back, partial failure (spec hooks 2)."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from serai.boxes.hooks import Hook, HookResults
from serai.dialects.hookproto.host_side import BoxFile
from serai.dialects.hookproto.messages import Box
from serai.errors import BadSettings, LimitHit, NotWritten
from tests.support.boxes.hook_scripts import BOX, PATIENT, Hooks, hooks

__all__ = ["hooks"]


@pytest.mark.req("hooks.scenario.hooks-01")
async def test_without_hooks_nothing_happens(hooks: Hooks) -> None:
    runner = hooks.runner()
    assert await runner.create(BOX, "/nowhere", hooks.on_state) == HookResults()
    assert await runner.destroy(BOX, {}) is None


@pytest.mark.req("hooks.scenario.hooks-02")
async def test_without_states_destroy_runs_nothing(hooks: Hooks) -> None:
    path = hooks.sh("hook", 'touch "$HERE/ran"')
    assert await hooks.runner(path).destroy(BOX, {}) is None
    assert await hooks.runner(path).destroy(BOX, {path: ""}) is None
    assert not (hooks.folder / "ran").exists()


@pytest.mark.req("hooks.scenario.hooks-03", "hooks.rule.1.3-box-on-create", "hooks.rule.1.1-one-request")
async def test_files_and_state_of_a_hook_come_back(hooks: Hooks) -> None:
    path = hooks.sh(
        "hook",
        """
        cat > "$HERE/request"
        printf '%s' '{"files":[{"path":"/etc/t","content_base64":"aGk=","mode":"0755","uid":5,"gid":6}],"state":"token"}'""",
    )
    outcome = await hooks.create(path)
    assert outcome == HookResults([BoxFile(path="/etc/t", content=b"hi", mode=0o755, uid=5, gid=6)], {path: "token"}, None)
    assert hooks.read("request") == '{"event":"box.create","box":{"box_id":"a","description":"mine"}}'
    assert hooks.kept == [(path, "token")]
    assert hooks.left() == []


@pytest.mark.req("hooks.rule.1.3-image")
@pytest.mark.parametrize("image", ["debian:12", ""])
async def test_the_image_is_told_where_there_is_one_and_else_not_even_named(hooks: Hooks, image: str) -> None:
    path = hooks.sh("hook", 'cat > "$HERE/request"')
    box = Box(box_id="a", image=image)
    assert (await hooks.runner(path).create(box, str(hooks.answers / "answer"), hooks.on_state)).error is None
    told = {"box_id": "a", "image": image} if image else {"box_id": "a"}
    assert json.loads(hooks.read("request")) == {"event": "box.create", "box": told}


@pytest.mark.req("hooks.rule.2.1-every-hook", "hooks.rule.2.2-file-order", "hooks.rule.1.1-one-process")
async def test_all_hooks_run_in_the_order_of_the_list_and_so_come_their_files(hooks: Hooks) -> None:
    def body(name: str) -> str:
        files = ",".join(f'{{"path":"/{file}","content":"{name}"}}' for file in ("same", name, "same"))
        return f"echo {name} >> \"$HERE/order\"; printf '%s' '{{\"files\":[{files}]}}'"

    paths = [hooks.sh(name, body(name)) for name in ("c", "a", "b")]
    outcome = await hooks.create(*paths)
    assert outcome.error is None
    assert hooks.read("order").split() == ["c", "a", "b"]
    assert [(file.path, file.content) for file in outcome.files] == [
        (f"/{file}", name.encode()) for name in ("c", "a", "b") for file in ("same", name, "same")
    ]


@pytest.mark.req(
    "hooks.scenario.hooks-04", "hooks.rule.2.2-stop-at-failure", "hooks.rule.1.2-create-failure", "hooks.rule.1.1-one-process"
)
async def test_a_failure_ends_the_create_with_what_came_before(hooks: Hooks) -> None:
    first = hooks.sh("first", """printf '{"state":"one","files":[{"path":"/one"}]}'""")
    second = hooks.sh("second", 'echo ran >> "$HERE/second-ran"; exit 4')
    third = hooks.sh("third", 'touch "$HERE/third-ran"')
    outcome = await hooks.create(first, second, third)
    assert str(outcome.error) == f"hook {second}: exit status 4"
    assert outcome.states == {first: "one"}
    assert [file.path for file in outcome.files] == ["/one"]
    assert hooks.read("second-ran") == "ran\n"
    assert not (hooks.folder / "third-ran").exists()
    assert hooks.left() == []


@pytest.mark.req("hooks.naive.03", "hooks.path.08", "hooks.rule.1.2-create-failure")
@pytest.mark.parametrize(
    ("file", "why"),
    [
        ('{"path":"relative"}', 'invalid path "relative": it is not absolute'),
        ('{"path":"/proc/x"}', 'invalid path "/proc/x": hooks may not write there'),
        ('{"path":"/f","content_base64":"!"}', 'decoding base64 content for "/f": illegal base64 data'),
        ('{"path":"/f","mode":"98"}', 'parsing mode "98" for "/f": not an octal number'),
        ('{"path":"/f","uid":-1}', 'owner of "/f": uid -1 is not between 0 and 4294967294'),
        ("null", 'invalid path "": it is empty'),
    ],
)
async def test_a_bad_file_fails_the_create_but_the_state_is_kept(hooks: Hooks, file: str, why: str) -> None:
    path = hooks.sh("hook", f"""printf '%s' '{{"files":[{file}],"state":"minted"}}'""")
    outcome = await hooks.create(path, hooks.sh("next", 'touch "$HERE/next-ran"'))
    assert str(outcome.error) == f"hook {path}: {why}"
    assert outcome.states == {path: "minted"}
    assert hooks.kept == [(path, "minted")]
    assert not (hooks.folder / "next-ran").exists()


@pytest.mark.req("hooks.naive.03", "hooks.rule.1.1-exit-status")
@pytest.mark.parametrize("end", ["exit 1", "kill -KILL $$"])
async def test_the_state_of_a_hook_that_ended_badly_is_lost(hooks: Hooks, end: str) -> None:
    path = hooks.sh("hook", f"""printf '{{"state":"undone"}}'; {end}""")
    outcome = await hooks.create(path)
    assert outcome.error is not None
    assert outcome.states == {}
    assert hooks.kept == []
    assert hooks.left() == []  # or it would be recovered


async def test_a_state_is_kept_before_the_next_hook_runs_and_before_the_answer_goes(hooks: Hooks) -> None:
    first = hooks.sh("first", """printf '{"state":"one","files":[{"path":"bad"}]}'""")
    second = hooks.sh("second", """printf '{"state":"%s"}' "$(ls "$HERE" | grep -c told)" """)
    there: list[list[str]] = []

    async def on_state(key: str, state: str) -> None:
        there.append(hooks.left())
        (hooks.folder / "told").touch()

    await hooks.runner(first, second).create(BOX, str(hooks.answers / "answer"), on_state)
    assert there == [["answer-0"]]  # its file is bad, which nobody had looked at yet

    good = hooks.sh("first", """printf '{"state":"one"}'""")
    (hooks.folder / "told").unlink()
    outcome = await hooks.runner(good, second).create(BOX, str(hooks.answers / "answer"), on_state)
    assert outcome.states == {good: "one", second: "1"}


async def test_when_a_state_cannot_be_kept_its_answer_stays_for_whoever_recovers(hooks: Hooks) -> None:
    path = hooks.sh("hook", """printf '{"state":"token"}'""")
    runner = hooks.runner(path, hooks.sh("next", 'touch "$HERE/next-ran"'))

    async def on_state(key: str, state: str) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        await runner.create(BOX, str(hooks.answers / "answer"), on_state)
    assert not (hooks.folder / "next-ran").exists()
    assert await runner.recover(str(hooks.answers / "answer"), ["key", "next"]) == {"key": "token"}


async def test_an_answer_that_lies_there_already_is_not_written_over(hooks: Hooks) -> None:
    path = hooks.sh("hook", 'touch "$HERE/ran"')
    (hooks.answers / "answer-0").write_text('{"state":"old"}')
    with pytest.raises(NotWritten, match="File exists"):
        await hooks.create(path)
    (hooks.answers / "answer-0").unlink()
    (hooks.answers / "answer-0").symlink_to(hooks.folder / "elsewhere")
    with pytest.raises(NotWritten, match="File exists"):
        await hooks.create(path)
    assert not (hooks.folder / "elsewhere").exists()
    assert not (hooks.folder / "ran").exists()


@pytest.mark.req(
    "hooks.naive.01", "hooks.naive.02", "hooks.scenario.hooks-05", "hooks.rule.1.3-box-on-destroy", "hooks.rule.1.3-request"
)
async def test_destroy_gives_each_state_back_in_the_same_order_and_skips_who_had_none(hooks: Hooks) -> None:
    paths = [hooks.sh(name, f'echo {name} >> "$HERE/order"; cat > "$HERE/{name}-got"') for name in ("b", "a", "c")]
    assert await hooks.runner(*paths).destroy(Box(box_id="x"), {paths[2]: "three", paths[0]: "one"}) is None
    assert hooks.read("order").split() == ["b", "c"]
    assert json.loads(hooks.read("b-got")) == {"event": "box.destroy", "box": {"box_id": "x"}, "state": "one"}
    assert json.loads(hooks.read("c-got"))["state"] == "three"


@pytest.mark.req("hooks.rule.2.3-best-effort", "hooks.rule.1.4-destroy-response", "hooks.naive.31")
async def test_destroy_runs_all_returns_the_first_error_and_logs_each_without_the_state(
    hooks: Hooks, caplog: pytest.LogCaptureFixture
) -> None:
    bad = hooks.sh("bad", 'cat >&2; echo "no vault" >&2; exit 2')  # it prints the whole request
    garbage = hooks.sh("garbage", "echo garbage")
    good = hooks.sh("good", """touch "$HERE/good-ran"; printf '{"files":[{"path":"bad"}],"state":"new"}'""")
    told: list[str] = []

    async def on_done(key: str) -> None:
        told.append(key)

    with caplog.at_level(logging.DEBUG, "serai"):
        states = {bad: "hunter2-one", garbage: "hunter2-two", good: "hunter2-three"}
        error = await hooks.runner(bad, garbage, good).destroy(BOX, states, on_done=on_done)
    assert error is not None
    assert str(error).startswith(f"hook {bad}: exit status 2: ")
    assert str(error).endswith("no vault")
    assert (hooks.folder / "good-ran").exists()
    assert told == [bad, garbage, good]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert f"hook {garbage} failed on destroy: decoding response: " in warnings[1]
    assert "hunter2" not in caplog.text + str(error) + error.stderr


async def test_destroy_passes_over_the_hooks_that_ran_before(hooks: Hooks) -> None:
    paths = [hooks.sh(name, f'touch "$HERE/{name}-ran"') for name in ("a", "b")]
    assert await hooks.runner(*paths).destroy(BOX, dict.fromkeys(paths, "s"), done={paths[0]}) is None
    assert not (hooks.folder / "a-ran").exists()
    assert (hooks.folder / "b-ran").exists()


@pytest.mark.req("hooks.rule.2.3-name-key")
async def test_a_state_belongs_to_the_name_of_its_hook_wherever_its_program_is(hooks: Hooks) -> None:
    path = hooks.sh("hook", """printf '{"state":"token"}'""")
    outcome = await hooks.create(Hook(path, name="vault"))
    assert outcome.states == {"vault": "token"}
    moved = hooks.sh("moved", 'cat > "$HERE/got"')
    assert await hooks.runner(Hook(moved, name="vault")).destroy(BOX, outcome.states) is None
    assert json.loads(hooks.read("got"))["state"] == "token"


@pytest.mark.req("hooks.rule.2.3-name-key")
@pytest.mark.parametrize(
    "two", [[Hook("/a"), Hook("/a")], [Hook("/a", name="x"), Hook("/b", name="x")], [Hook("x"), Hook("/b", "x")]]
)
async def test_two_hooks_of_one_key_are_refused(hooks: Hooks, two: list[Hook]) -> None:
    with pytest.raises(BadSettings, match=f"two hooks are called {two[0].key}"):
        hooks.runner(*two)
    hooks.runner(Hook("/a"), Hook("/a", name="again"))


async def test_a_state_without_its_hook_is_told_by_its_key_alone(hooks: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    path = hooks.sh("hook", 'touch "$HERE/ran"')
    assert await hooks.runner(path).destroy(BOX, {"gone": "hunter2", path: "s"}) is None
    assert (hooks.folder / "ran").exists()
    [record] = caplog.records
    assert (record.levelname, "no hook gone" in record.message, "hunter2" in record.message) == ("WARNING", True, False)


@pytest.mark.req("hooks.rule.1.12-inject-bytes", "hooks.rule.1.12-inject-files", "hooks.rule.1.12-state-size")
@pytest.mark.parametrize(
    ("limit", "value", "over"),
    [
        ("max_inject_bytes", 9, """printf '{"state":"s","files":[{"path":"/b","content":"12345"}]}'"""),
        ("max_inject_files", 2, """printf '{"state":"s","files":[{"path":"/b"},{"path":"/c"}]}'"""),
        ("hook_state", 4, """printf '{"state":"ss\\303\\251s"}'"""),
    ],
)
async def test_too_much_of_all_hooks_together_fails_and_keeps_the_state(hooks: Hooks, limit: str, value: int, over: str) -> None:
    first = hooks.sh("first", """printf '{"files":[{"path":"/a","content":"12345"}]}'""")
    second = hooks.sh("second", over)
    outcome = await hooks.create(first, second, limits=PATIENT.but(**{limit: value}))
    assert outcome.error is not None
    assert outcome.error.limit == LimitHit(limit, value)
    assert str(outcome.error).startswith(f"hook {second}: ")
    assert list(outcome.states) == [second]
    assert (await hooks.create(first, second, limits=PATIENT.but(**{limit: value + 1}))).error is None


async def test_a_long_answer_is_read_whole(hooks: Hooks) -> None:
    path = hooks.python("hook", "print(json.dumps({'files': [{'path': '/f', 'content': 'x' * 2_000_000}], 'state': 's'}))")
    outcome = await hooks.create(path)
    assert outcome.error is None
    assert [len(file.content) for file in outcome.files] == [2_000_000]


@pytest.mark.req("hooks.bytes.04", "hooks.mode.08")
async def test_what_was_passed_over_in_a_file_is_logged(hooks: Hooks, caplog: pytest.LogCaptureFixture) -> None:
    path = hooks.sh("hook", """printf '{"files":[{"path":"/f","content":"hunter2","content_base64":"aGk=","mode":"4755"}]}'""")
    outcome = await hooks.create(path)
    assert [(file.content, file.mode) for file in outcome.files] == [(b"hi", 0o755)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "both content and content_base64" in caplog.text
    assert "mode 4755" in caplog.text
    assert "hunter2" not in caplog.text


async def test_answers_are_recovered_by_their_place_and_nothing_else_is(hooks: Hooks, tmp_path: Path) -> None:
    runner = hooks.runner(limits=PATIENT.but(hook_max_output=100))
    bad_file, long = '{"state":"six","files":[{"path":"bad"}]}', '{"state":"%s"}' % ("x" * 100)
    texts = ['{"state":"one"}', '{"sta', "", "{}", bad_file, '{"state":"hunter2"} more', long]
    for index, text in enumerate(texts):
        (hooks.answers / f"answer-{index}").write_text(text)
    (tmp_path / "elsewhere").write_text('{"state":"not ours"}')
    (hooks.answers / "answer-8").symlink_to(tmp_path / "elsewhere")
    (hooks.answers / "answer-9").mkdir()
    assert await runner.recover(str(hooks.answers / "answer"), [f"key {index}" for index in range(10)]) == {
        "key 0": "one",
        "key 4": "six",
    }
    assert await runner.recover(str(hooks.answers / "answer"), ["only"]) == {"only": "one"}
    shutil.rmtree(hooks.answers)
    assert await runner.recover(str(hooks.answers / "answer"), ["only"]) == {}


async def test_an_outcome_and_a_hook_show_no_secrets() -> None:
    outcome = HookResults([BoxFile(path="/f", content=b"hunter2", mode=0, uid=0, gid=0)], {"key": "hunter2"}, None)
    assert "hunter2" not in repr([outcome, Hook("/x", env={"TOKEN": "hunter2"})])
