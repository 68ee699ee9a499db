"""The WIT text that ships says what the spec's tables say, and a trimmed world only what was asked for."""

from __future__ import annotations

import re
from itertools import combinations

import pytest

from serai.dialects.yoi import worlds

_FUNCTION = re.compile(r"^ *(?:export )?%?([a-z-]+): func\(([^)]*)\) -> string;$", re.MULTILINE)


def functions(text: str) -> dict[str, worlds.Parameters]:
    found: dict[str, worlds.Parameters] = {}
    for name, taken in _FUNCTION.findall(text):
        found[name] = tuple((called.strip(), kind.strip()) for called, kind in (one.split(":") for one in taken.split(",") if one))
    return found


def blocks(text: str, word: str) -> dict[str, str]:
    """The worlds or interfaces of a file, by name."""
    return dict(re.findall(rf"^{word} ([a-z]+) \{{\n(.*?)^\}}$", text, re.MULTILINE | re.DOTALL))


def test_both_packages_have_the_functions_of_the_tables() -> None:
    texts = worlds.read_wit()
    assert "package yoi:plugin@1.0.0;" in texts["yoi-plugin.wit"]
    assert "package yoi:host@1.0.0;" in texts["deps/yoi-host/host.wit"]
    interfaces = blocks(texts["deps/yoi-host/host.wit"], "interface")
    assert {name: functions(text) for name, text in interfaces.items()} == worlds.HOST
    found = blocks(texts["yoi-plugin.wit"], "world")
    assert {name: functions(text) for name, text in found.items()} == worlds.EXPORTS
    for text in found.values():
        assert re.findall(r"import (\S+);", text) == [worlds.format_import(api) for api in worlds.HOST]


@pytest.mark.parametrize("apis", [some for count in range(4) for some in combinations(worlds.HOST, count)])
@pytest.mark.parametrize("world", worlds.EXPORTS)
def test_a_trimmed_world_imports_what_was_asked_for_and_exports_all(world: str, apis: tuple[str, ...]) -> None:
    texts = worlds.trim_world(world, apis)
    found = blocks(texts["yoi-plugin.wit"], "world")
    assert list(found) == [world]
    assert re.findall(r"import (\S+);", found[world]) == [worlds.format_import(api) for api in apis]
    assert functions(found[world]) == worlds.EXPORTS[world]
    assert ("deps/yoi-host/host.wit" in texts) == bool(apis)


def test_what_there_is_not_is_said() -> None:
    with pytest.raises(ValueError, match="no world 'both'"):
        worlds.trim_world("both", ())
    with pytest.raises(ValueError, match="no host interface 'https'"):
        worlds.trim_world("tool", ("https",))
