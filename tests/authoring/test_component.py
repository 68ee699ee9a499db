"""Components made of core modules in pure Python: they run, with the host's functions, and what cannot be one is said."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.authoring import component
from serai.dialects.yoi import worlds
from serai.errors import BadExtension
from tests.support.yoi import components

READ = '(import "yoi:host/fs@1.0.0" "read" (func $read (param i32 i32 i32)))'
SEND = '(import "yoi:host/websocket@1.0.0" "send-text" (func $send (param i32 i32 i32 i32)))'
MEMORY = """
(memory (export "memory") 2) (global $next (mut i32) (i32.const 1024))
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
  (global.get $next) (global.set $next (i32.add (global.get $next) (local.get 3))))
"""
GIVE = "(i32.store (i32.const 8) (local.get 2)) (i32.store (i32.const 12) (local.get 3)) (i32.const 8)"
READS = "(call $read (local.get 2) (local.get 3) (i32.const 8)) (i32.const 8)"
SENDS = "(call $send (i32.const 7) (local.get 2) (local.get 3) (i32.const 8)) (i32.const 8)"


def assemble_core(call: str, imports: str = "", more: str = "") -> bytes:
    """A core module of the world `tool`."""
    text = f'(module {imports} {MEMORY} (func (export "call") (param i32 i32 i32 i32) (result i32) {call}) {more})'
    return component.assemble(text)


def run(component: bytes, *texts: str, host: Callable[..., str] = lambda *_: "{}") -> str:
    from wasmtime import Engine, Store
    from wasmtime.component import Component, Linker

    engine = Engine()
    linker = Linker(engine)
    with linker.root() as root:
        for api, names in worlds.HOST.items():
            with root.add_instance(worlds.format_import(api)) as instance:
                for name in names:
                    instance.add_func(name, lambda _store, *given, api=api, name=name: host(api, name, *given))
    store = Store(engine)
    function = linker.instantiate(store, Component(engine, component)).get_func(store, "call")
    assert function is not None
    answer: str = function(store, *texts)
    function.post_return(store)
    return answer


def test_a_core_module_becomes_a_component_that_runs() -> None:
    made = component.wrap_module(assemble_core(GIVE), "tool")
    assert component.read_interface_names(made) == ((), ("call",))
    assert run(made, "a", "häns") == "häns"


def test_the_host_functions_that_it_uses_are_imported_and_reached() -> None:
    asked: list[tuple[object, ...]] = []

    def host(*said: object) -> str:
        asked.append(said)
        return json.dumps("é" * 3)

    made = component.wrap_module(assemble_core(READS, READ), "tool")
    assert component.read_interface_names(made).imports == ("yoi:host/fs@1.0.0",)
    assert run(made, "a", "{}", host=host) == json.dumps("é" * 3)
    both = component.wrap_module(assemble_core(SENDS, READ + SEND), "tool")
    assert set(component.read_interface_names(both).imports) == {"yoi:host/fs@1.0.0", "yoi:host/websocket@1.0.0"}
    run(both, "a", "text", host=host)
    assert asked == [("fs", "read", "{}"), ("websocket", "send-text", 7, "text")]


def test_what_frees_an_answer_is_called() -> None:
    """It makes the next answer another one."""
    freed = '(global $freed (mut i32) (i32.const 0)) (func (export "cabi_post_call") (param i32) unreachable)'
    made = component.wrap_module(assemble_core(GIVE, more=freed), "tool")
    with pytest.raises(Exception, match="unreachable"):
        run(made, "a", "b")


def test_what_a_module_lacks_is_said() -> None:
    with pytest.raises(BadExtension, match="does not export start, handle-tool, handle-ingress, status, stop"):
        component.wrap_module(assemble_core(GIVE), "instance")
    with pytest.raises(BadExtension, match="does not export memory, cabi_realloc, call"):
        component.wrap_module(component.assemble("(module)"), "tool")
    with pytest.raises(BadExtension, match="no core module"):
        component.wrap_module(components.tool(), "tool")


@pytest.mark.parametrize(
    ("imports", "said"),
    [
        (
            '(import "wasi_snapshot_preview1" "fd_write" (func))',
            "imports 'fd_write' of 'wasi_snapshot_preview1', which no host has",
        ),
        ('(import "yoi:host/fs@1.0.0" "remove" (func))', "imports 'remove' of 'yoi:host/fs@1.0.0', which no host has"),
        ('(import "env" "table" (table 1 funcref))', "imports 'table' of 'env', which is no function"),
    ],
)
def test_what_no_host_has_is_refused(imports: str, said: str) -> None:
    with pytest.raises(BadExtension, match=said):
        component.wrap_module(assemble_core(GIVE, imports), "tool")


def test_the_names_of_components_are_read() -> None:
    assert component.read_interface_names(components.echo()) == ((), tuple(worlds.EXPORTS["instance"]))
    assert component.read_interface_names(components.all_imports("tool")).imports == tuple(
        worlds.format_import(api) for api in worlds.HOST
    )
    assert component.read_interface_names(components.unknown_import()).imports == ("wasi:cli/environment@0.2.0",)
    resources = (
        '(component (import "res" (type (sub resource))) (import "mod" (core module)) (import "f" (func)) (export "g" (func 0)))'
    )
    assert component.read_interface_names(component.assemble(resources)) == (("res", "mod", "f"), ("g",))


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_have_names_or_an_error(data: bytes, begins: bool) -> None:
    try:
        component.read_interface_names((component.COMPONENT if begins else b"") + data)
    except ValueError:
        pass


@given(st.data())
def test_a_component_cut_or_changed_has_names_or_an_error(data: st.DataObject) -> None:
    whole = bytearray(components.all_imports("tool"))
    at = data.draw(st.integers(8, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    try:
        component.read_interface_names(bytes(whole[: data.draw(st.integers(at, len(whole)))]))
    except ValueError:
        pass
