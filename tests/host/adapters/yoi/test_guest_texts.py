"""The words in which a plugin's failures and descriptions reach people and models: names stay, secrets and hidden text do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.errors import BadFrame, PeerGone, Refused, Trapped
from serai.host.adapters.yoi.offer import build_tool_error
from tests.support.yoi import components
from tests.support.yoi.hosted_plugins import DOWN, ID, Plugin, guest_of, run_host

HIDDEN = "\u202edlrow\u2066\u200e\u061c \U000e0041\U000e0042hi\u2029"


@pytest.mark.req("yoi.rule.080", "yoi.rule.089")
@pytest.mark.parametrize(
    ("id", "tool"), [("cookie-jar", "raw"), (ID, "count_tokens"), ("api-key-vault", "raw"), ("authorization", "password-check")]
)
async def test_a_name_with_a_word_for_a_credential_stays_whole(tmp_path: Path, id: str, tool: str) -> None:
    guest = components.Guest()
    guest.tool(tool, guest.answer("nonsense"))
    plugin = Plugin(tmp_path, guest.build(), id=id, tools=(tool,))
    async with run_host(tmp_path, plugin) as host:
        digest = plugin.enablement["grants"]["digest"]
        which = f"plugin tool `{tool}` from `user:{id}` (digest {digest}) failed closed: "
        assert (await host.call_tool(tool)).text.startswith(f"{which}WASM output error: ")
        serving = guest_of(host, id)
        for cause in (
            Trapped("token=abc123 came"),
            BadFrame('{"password": "abc123"}'),
            Refused("secret abc123"),
            PeerGone("token abc123"),
        ):
            told = build_tool_error(serving.record, serving._tools[tool], cause).message
            assert told.startswith(which)
            assert "<redacted>" in told
            assert "abc123" not in told


@pytest.mark.req("yoi.rule.089")
async def test_the_cause_of_a_failed_start_is_redacted(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, components.unknown_import("acme:token/abc123@1.0.0"), tools=("count",))
    async with run_host(tmp_path, plugin) as host:
        (row,) = host.report.failed
        assert row.why.startswith("plugin instance startup failed closed: ")
        assert "acme:token<redacted>" in row.why
        assert not any("abc123" in line for line in host.report.to_lines())


@pytest.mark.req("yoi.edge.36")
async def test_nothing_hidden_of_its_error_document_reaches_people_or_a_model(tmp_path: Path) -> None:
    guest = components.Guest()
    guest.tool("count", guest.counter()).on("status", guest.answer(f'{{"error":"{HIDDEN}"}}'))
    async with run_host(tmp_path, Plugin(tmp_path, guest.build(), tools=("count",)), limits=DOWN) as host:
        status = await guest_of(host).refresh_status()
        assert "dlrow hi" in (status.last_error or "")
        texts = [status.last_error or "", *(one.message for one in status.diagnostics), (await host.call_tool("count")).text]
        assert all(text.isprintable() for text in texts)


@pytest.mark.req("yoi.conform.57", "yoi.rule.080")
@pytest.mark.parametrize("component", [components.bad_utf8, components.surrogate], ids=lambda made: made.__name__)
async def test_output_that_is_no_utf8_is_told_in_the_protocols_words(tmp_path: Path, component: object) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, component(), tools=("call",)), limits=DOWN) as host:  # type: ignore[operator]
        result = await host.call_tool("call")
        assert " failed closed: WASM output error: guest output is not UTF-8: invalid utf-8" in result.text
        assert result.code == "BAD_ANSWER"


@pytest.mark.req("yoi.edge.36")
async def test_a_tools_description_is_shown_to_a_model_without_what_steers_or_hides(tmp_path: Path) -> None:
    said = {"name": "echo", "description": "says\x1b[31m it\u202e again\u2066\x9b0m\r\nand again"}
    async with run_host(tmp_path, Plugin(tmp_path, components.echo(), tools=(said,))) as host:
        assert [spec.description for spec in host.tools] == ["says it again\nand again"]
