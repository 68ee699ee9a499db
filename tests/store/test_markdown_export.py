"""A session to read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.store import StoredSession, session_to_markdown
from serai.store.markdown_export import fence_text
from serai.store.messages import (
    AssistantMessage,
    StoredImage,
    StoredText,
    StoredThinking,
    StoredToolCall,
    ToolResultMessage,
    UserMessage,
)
from tests.support.stored_sessions import create, every_kind, file_of, line, meta


def page(session: StoredSession) -> str:
    return "".join(session_to_markdown(session))


@pytest.mark.req("store.export.markdown")
def test_the_page_has_all_that_was_said_on_the_active_path(tmp_path: Path) -> None:
    with create(tmp_path, title="A `title`\nof two lines", model="m1", agent="claude", agent_session="theirs") as session:
        first = session.append_user("What is *this*?", [StoredImage("QUJD" * 100, "image/png")])
        session.append_user("left behind")
        session.branch(first.id, "went another way")
        arguments = {"command": "echo '```'"}
        session.say(
            AssistantMessage(
                (StoredThinking("hm </DETAILS> hm"), StoredText("I look."), StoredToolCall("c1", "bash", arguments)),
                error="too slow",
            )
        )
        session.say(
            ToolResultMessage("c1", "bash", (StoredText("````\ncode\n````"), StoredImage("QUJD", "image/gif")), is_error=True)
        )
        session.append_entry("ext:x:y", {"hidden": 1})
        shown = page(session)
    assert shown.startswith("# A `title` of two lines\n\n")
    for part in (
        f"- Session: `{session.id}`\n",
        "- Model: `m1`\n",
        "- The agent's own id: `theirs`\n",
        "What is *this*?\n",
        "*An image (image/png, 300 bytes)*",
        "went another way",
        "<details><summary>Thinking</summary>\n\n```\nhm </DETAILS> hm\n```\n\n</details>",
        "I look.\n",
        '### Calls `bash`\n\n````json\n{\n  "command": "echo \'```\'"\n}\n````\n',
        "**It failed:** too slow",
        "### Error of `bash`",
        "`````\n````\ncode\n````\n`````\n",
        "*An image (image/gif, 3 bytes)*",
    ):
        assert part in shown
    assert "left behind" not in shown
    assert "hidden" not in shown
    assert re.findall("^## (User|Assistant|Another way) · 20..-..-.. ..:..:.. UTC$", shown, re.MULTILINE) == [
        "User",
        "Another way",
        "Assistant",
    ]


@pytest.mark.req("store.export.markdown")
def test_what_was_compacted_and_what_is_broken_is_shown_too(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session.append_user("long ago")
        session.compact([UserMessage("in short")])
        shown = page(session)
        assert shown.startswith(f"# Session {session.id}\n")
        assert shown.index("long ago") < shown.index("## Compacted") < shown.index("in short")
    odd = [{"type": "audio", "clip": 1}, {"data": "x", "mimeType": "a/b"}]
    lines = [line("user", "a", None, 5), line("assistant", "b", "a", {"content": odd}), line("branch_summary", "c", "b", 7)]
    with StoredSession(str(file_of(tmp_path, meta(createdAt="9999-99-99T00:00:00Z"), *lines))) as session:
        shown = page(session)
        assert "```\n5\n```" in shown
        assert '{"type":"audio","clip":1}' in shown


@pytest.mark.parametrize(
    "text",
    [
        "look:\n```\nnot closed",
        "~~~~\n~~~",
        "```\n   ```\n<!-- hidden",  # which of the two fences counts?
        "1. a\n\n   ```\n```\nopen",
        "- ```\n```\n",
        "a comment <!-- ",
        "<details>",
        "`a` <script> `b`",
        "a ` b\n<!-- ` c",
        "\u2028```\n<style>\n```",
        "</div>",
        "<?php",
        "~~~ `a`\n",
    ],
)
@pytest.mark.req("store.export.markdown")
def test_a_text_that_would_hide_what_follows_is_shown_as_code(tmp_path: Path, text: str) -> None:
    with create(tmp_path, title="a <!-- title") as session:
        session.append_user(text)
        session.say(AssistantMessage((StoredText(text),), error=text))
        first = session.append_user("x")
        session.branch(first.id, text)
        shown = page(session)
    assert shown.count(fence_text(text)) == 4
    assert shown.startswith("# a &lt;!-- title\n")
    assert "<" not in shown.replace(fence_text(text), "")


@pytest.mark.parametrize(
    "text",
    [
        "```python\nif a < b:\n    '<div>'\n```\ndone",
        "`Vec<u8>` and ``a`<b>``",
        "see <https://example.org/a>",
        "1 < 2",
        "~~~\n```\n~~~",
    ],
)
def test_a_text_that_hurts_nobody_stays_as_it_is(tmp_path: Path, text: str) -> None:
    with create(tmp_path) as session:
        session.append_user(text)
        assert f"UTC\n\n{text}\n\n" in page(session)


def test_the_page_has_the_title_of_now(tmp_path: Path) -> None:
    with create(tmp_path, title="old") as ours, StoredSession(ours.file) as theirs:
        theirs.set_title("new")
        assert page(ours).startswith("# new\n")


def test_every_kind_of_entry_can_be_exported(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        for id in every_kind(session):
            assert id
            assert page(session).startswith("# ")


@given(st.text(alphabet="`~a\n ", max_size=60))
def test_a_fence_is_longer_than_any_in_the_text(text: str) -> None:
    first, *_, last, empty, end = fence_text(text).split("\n")
    assert (first, empty, end) == (last, "", "")
    assert first not in text
    assert len(first) >= 3
