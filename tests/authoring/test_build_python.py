"""What an extension offers, as the text of a manifest: it reads back as it was, and the manifest's own checks take it."""

from __future__ import annotations

import tomllib
from typing import Any, Literal, TypedDict

from hypothesis import given
from hypothesis import strategies as st

from serai.authoring.build_python import format_ingress, format_service, format_tool, reduce_schema
from serai.plugins import manifest as manifests
from serai.sdk import Extension
from serai.sdk.adapters.yoi import described
from serai.toml_writer import to_toml

HEAD = b"""
schema_version = 1
id = "some"
name = "some"
version = "1"
[runtime]
kind = "wasm-component"
world = "yoi:plugin/instance@1.0.0"
component = "plugin.component.wasm"
"""

VALUES = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES)
def test_a_value_reads_back_as_it_was(value: Any) -> None:
    assert tomllib.loads(f"value = {to_toml(value)}\n")["value"] == value


class Stop(TypedDict):
    town: str
    nights: int


def test_what_is_offered_is_what_a_manifest_takes() -> None:
    ext = Extension("some")

    @ext.tool
    def trip(
        stops: list[Stop], mode: Literal["rail", "foot"] = "rail", note: str | None = None, tags: dict[str, int] | None = None
    ) -> str:
        """Plan a "trip".

        Args:
            mode: how to go
        """
        return ""

    ext.service("feed", description="it\nfeeds")
    ext.ingress("in", kinds=["a"], sources=["websocket:wss://x/"])(lambda event: None)
    told = described(ext)
    text = "\n".join([format_tool(told["tool"][0]), format_service(told["service"][0]), format_ingress(told["ingress"][0])])
    manifest = manifests.parse(HEAD + text.encode())
    [tool] = manifest.tools
    assert (tool.name, tool.description) == ("trip", 'Plan a "trip".')
    properties = tool.input_schema["properties"]
    assert properties["stops"]["items"]["properties"]["town"]["type"] == "string"
    assert (properties["mode"]["enum"], properties["mode"]["description"]) == (["rail", "foot"], "how to go")
    assert properties["note"]["type"] == "string"
    assert tool.input_schema["required"] == ["stops"]
    assert [service.description for service in manifest.services] == ["it\nfeeds"]
    assert [(one.event_kinds, one.sources) for one in manifest.ingresses] == [(("a",), ("websocket:wss://x/",))]


def test_a_schema_that_names_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    found = reduce_schema({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert found["type"] == "object"
    assert "$ref" not in str(found)
