"""Which dialect an extension speaks: as its host expects it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from serai.sdk import BadExtension
from serai.sdk.adapters import DIALECTS, DialectChoice, choose, load, recognise

PIGLET = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"5","cwd":"/x"}}\n'
MCP = b'{"method":"initialize","params":{"protocolVersion":"2025-06-18","clientInfo":{"name":"x"}},"jsonrpc":"2.0","id":0}\n'


@pytest.mark.req("sdk.life.dialect")
@pytest.mark.parametrize(
    ("arguments", "environ", "choice"),
    [
        ([], {}, DialectChoice("zot", named=False)),
        (["--dialect", "mcp"], {"SERAI_DIALECT": "piglet", "PIGLET_FD": "1"}, DialectChoice("mcp")),
        (["x", "--dialect=yoi"], {}, DialectChoice("yoi")),
        (["--dialect"], {}, DialectChoice("zot", named=False)),
        ([], {"SERAI_DIALECT": "mcp", "PIGLET_FD": "1"}, DialectChoice("mcp")),
        ([], {"SERAI_DIALECT": "piglet", "PIGLET_FD": "1"}, DialectChoice("piglet", (3, 4))),
        ([], {"SERAI_DIALECT": "piglet"}, DialectChoice("piglet")),
        ([], {"PIGLET_FD": "1"}, DialectChoice("piglet", (3, 4))),
        ([], {"PIGLET_FD": "yes", "SERAI_DIALECT": ""}, DialectChoice("zot", named=False)),
    ],
)
def test_arguments_then_environment(arguments: list[str], environ: Mapping[str, str], choice: DialectChoice) -> None:
    assert choose(arguments, environ) == choice


@pytest.mark.req("sdk.life.dialect")
@pytest.mark.parametrize(("first", "dialect"), [(b"", ""), (PIGLET, "piglet"), (MCP, "mcp"), (b'{"type":"later"}', "")])
def test_then_first_bytes(first: bytes, dialect: str) -> None:
    assert recognise(first) == dialect


@pytest.mark.req("sdk.life.dialect")
def test_each_built_dialect_loads_and_the_others_are_told() -> None:
    assert [name for name, dialect in DIALECTS.items() if dialect.module and load(name).dialect == name] == ["piglet", "zot"]
    with pytest.raises(BadExtension, match='no adapter for the dialect "klingon"') as raised:
        load("klingon")
    assert "it speaks piglet, zot" in raised.value.hint


@pytest.mark.req("sdk.life.dialect")
def test_a_host_that_speaks_first_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("from serai.sdk import Extension\nExtension('x').main()\n")
    ran = subprocess.run(
        [sys.executable, "x.py"],
        cwd=tmp_path,
        input=MCP,
        capture_output=True,
        timeout=50,
        check=False,
        env={key: value for key, value in os.environ.items() if not key.startswith("SERAI")},
    )
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b'[x] this SDK has no adapter for the dialect "mcp"; it speaks piglet, zot' in ran.stderr
