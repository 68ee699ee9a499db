"""Every name of the seed is here, every wire type has the seed's JSON names, and the list of them is complete."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.compat import agentboot
from tests.support.agentboot.seed_names import parse_exports, read_list, read_seed, to_snake
from tests.support.doc_pages import read_rows

LISTED = read_list()
TYPES: dict[str, dict[str, list[str]]] = LISTED["types"]
NAMES = [*LISTED["functions"], *LISTED["constants"], *LISTED["variables"], *TYPES]
WIRE = [name for name, about in TYPES.items() if "json" in about]
PAGE = Path(__file__).parents[3] / "docs" / "parity" / "002-agentboot.md"


def json_names(name: str, what: str = "json") -> set[str]:
    about = TYPES[name]
    return {*about.get(what, ()), *(one for base in about.get("embeds", ()) for one in json_names(base, what))}


def make_value(name: str) -> Any:
    """One of that type, with nothing but what it must have."""
    cls = getattr(agentboot, name)
    needed = {field.name: _zero(field.type) for field in msgspec.structs.fields(cls) if field.required}
    return cls(**needed)


def _zero(kind: Any) -> Any:
    return {str: "", bool: False, int: 0}.get(kind)


@pytest.mark.req("agents.boot.names")
@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_seed_can_be_imported_as_it_is(name: str) -> None:
    assert getattr(agentboot, name) is not None
    assert name in dir(agentboot)


@pytest.mark.req("agents.boot.names")
@pytest.mark.parametrize("name", LISTED["functions"])
def test_a_function_is_there_in_pythons_spelling_too(name: str) -> None:
    assert getattr(agentboot, to_snake(name)) is getattr(agentboot, name)


@pytest.mark.req("agents.boot.names")
@pytest.mark.parametrize(("name", "method"), [(name, one) for name, about in TYPES.items() for one in about.get("methods", ())])
def test_a_method_of_the_seed_is_there_in_pythons_spelling(name: str, method: str) -> None:
    assert callable(getattr(getattr(agentboot, name), to_snake(method)))


@pytest.mark.req("agents.boot.names")
@pytest.mark.parametrize("name", [name for name, about in TYPES.items() if "fields" in about])
def test_a_records_fields_are_there_in_pythons_spelling(name: str) -> None:
    fields = {field.name for field in msgspec.structs.fields(getattr(agentboot, name))}
    assert {to_snake(one) for one in TYPES[name]["fields"]} <= fields


@pytest.mark.req("agents.boot.json", "agents.rule.37")
@pytest.mark.parametrize("name", WIRE)
def test_a_wire_type_has_the_seeds_json_names_and_leaves_out_what_may_be(name: str) -> None:
    cls = getattr(agentboot, name)
    names = {field.encode_name for field in msgspec.structs.fields(cls)}
    ours = {"shutdown_grace_period"} if name == "Config" else set()
    assert names - ours == json_names(name)
    written = set(msgspec.to_builtins(make_value(name)))
    assert written == json_names(name) - json_names(name, "optional")


@pytest.mark.req("agents.boot.json")
@pytest.mark.parametrize("name", WIRE)
def test_a_wire_type_is_the_same_after_it_was_json(name: str) -> None:
    one = make_value(name)
    assert msgspec.json.decode(msgspec.json.encode(one), type=type(one)) == one


@pytest.mark.req("agents.boot.names")
def test_the_list_is_all_that_the_seed_exports(record_property: Any) -> None:
    """The text is beside the repository where it is built, and nowhere else: then the list is taken as it is."""
    seed = read_seed()
    if seed is None:
        record_property("reason", "the seed's text is not at hand, so there is nothing to compare the list with")
        return
    assert parse_exports(seed) == LISTED


@pytest.mark.req("agents.boot.names")
def test_the_page_has_every_name_of_the_list() -> None:
    told = {seed for seed, _ in read_rows(PAGE)}
    wanted = {*NAMES, *(f"{name}.{one}" for name, about in TYPES.items() for one in about.get("methods", ()))}
    assert wanted <= told


def test_what_the_package_shows_to_type_checkers_is_what_it_has() -> None:
    stub = ast.parse(Path(inspect.getfile(agentboot)).with_suffix(".pyi").read_text())
    shown = {alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert shown == set(dir(agentboot))
    assert all(getattr(agentboot, name) is not None for name in dir(agentboot))


def test_the_seeds_spelling_in_pythons() -> None:
    spelled = {
        "GetCostUSD": "get_cost_usd",
        "BotUUID": "bot_uuid",
        "MCPServers": "mcp_servers",
        "StrictMcpConfig": "strict_mcp_config",
    }
    assert {name: to_snake(name) for name in spelled} == spelled
    assert to_snake("String") == "__str__"
    assert str(agentboot.OutputFormatStreamJSON) == "stream-json"
