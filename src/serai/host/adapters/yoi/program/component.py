"""A component on wasmtime: what it must be before any code of it runs, and calls into it and out of it.

Its imports, and its exports with their types, are checked first (spec yoi 2.3). A call is texts in, a text out. wasmtime's own
`Func.__call__` and `add_func` look the types up again at every call, which takes longer than a small guest does. The types were
checked when the component was loaded and hold; so the library's C functions are called here with prepared arrays. Where the
bindings do not look as expected, the public functions are used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from wasmtime import Engine, Store, WasmtimeError
from wasmtime.component import U32, Component, Func, FuncType, LinkerInstance, String

Answer = tuple[str, int]  # the text, and its size when it was too large to be taken over
Ask = Callable[[str, str, Sequence[Any]], str]  # asks the parent; raises `WasmtimeError` alone


class PublicCalls:
    """By the public API."""

    def __init__(self, most: int) -> None:
        self._most = most

    def export(self, func: Func, store: Store) -> Callable[[Sequence[str]], Answer]:
        def call(args: Sequence[str]) -> Answer:
            text: str = func(store, *args)
            size = len(text.encode())
            return ("", size) if size > self._most else (text, 0)

        return call

    def provide(self, instance: LinkerInstance, interface: str, function: str, params: Sequence[str], ask: Ask) -> None:
        del params

        def answer(_: Any, *args: Any) -> str:
            return ask(interface, function, args)

        instance.add_func(function, answer)


class DirectCalls:
    """By the C functions; `ways` says whether this can be."""

    def __init__(self, most: int, ffi: Any) -> None:
        self._most = most
        self._ffi = ffi
        self._val = val = ffi.wasmtime_component_val_t
        self._string = _get_string_kind()
        self._callbacks: list[Any] = []  # for the life of the process: the linker has pointers to them

        class Text(ctypes.Structure):
            """A value of the kind string whose bytes are Python's: they are only read."""

            _fields_ = (
                ("kind", ctypes.c_uint8),
                ("size", ctypes.c_size_t),
                ("data", ctypes.c_char_p),
                ("rest", ctypes.c_uint8 * (ctypes.sizeof(val) - 24)),
            )

        self._text = Text

    def export(self, func: Func, store: Store) -> Callable[[Sequence[str]], Answer]:
        ffi, most, wanted = self._ffi, self._most, self._string
        run, free, copied = ffi._wasmtime_component_func_call, ffi._wasmtime_component_val_delete, ctypes.string_at
        room = (self._text * 2)()
        for each in room:
            each.kind = wanted
        given = ctypes.cast(room, ctypes.POINTER(self._val))
        result = self._val()
        at, target, context = ctypes.byref(result), ctypes.byref(func._func), store._context()
        first, second = room[0], room[1]

        def call(args: Sequence[str]) -> Answer:
            count = len(args)
            if count:
                data = args[0].encode()
                first.size, first.data = len(data), data
            if count > 1:
                data = args[1].encode()
                second.size, second.data = len(data), data
            error = run(target, context, given, count, at, 1)
            if error:
                raise WasmtimeError._from_ptr(error)
            try:
                text = result.of.string
                size = text.size
                if size > most:  # before it is copied (spec yoi 21.31)
                    return "", size
                return (copied(text.data, size).decode() if size else ""), 0
            finally:
                free(at)

        return call

    def provide(self, instance: LinkerInstance, interface: str, function: str, params: Sequence[str], ask: Ask) -> None:
        ffi, texts, wanted = self._ffi, tuple(kind == "string" for kind in params), self._string
        copy, pointer = ffi._wasm_byte_vec_new, ctypes.POINTER(ctypes.c_ubyte)

        def answer(_data: Any, _context: Any, _type: Any, args: Any, _count: int, results: Any, _results: int) -> int:
            try:
                given = []
                for at, is_text in enumerate(texts):
                    of = args[at].of
                    given.append(ctypes.string_at(of.string.data, of.string.size).decode() if is_text else of.u32)
                said = ask(interface, function, given).encode()
                result = results[0]
                result.kind = wanted
                copy(
                    ctypes.byref(result.of.string), len(said), ctypes.cast(ctypes.c_char_p(said), pointer)
                )  # what it owns must be its own
            except WasmtimeError as error:
                return _to_pointer(error)
            except BaseException as error:  # nothing of Python's may go through C
                return _to_pointer(WasmtimeError(f"host function failed: {error!r}"))
            return 0

        callback = ffi.wasmtime_component_func_callback_t(answer)
        name = function.encode()
        error = ffi._wasmtime_component_linker_instance_add_func(
            instance.ptr(), ctypes.create_string_buffer(name), len(name), callback, None, _NO_FINALIZER
        )
        if error:
            raise WasmtimeError._from_ptr(error)
        self._callbacks.append(callback)


_NO_FINALIZER = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))


def _to_pointer(error: WasmtimeError) -> int:
    return ctypes.cast(error._consume(), ctypes.c_void_p).value or 0


def choose_calls(most: int) -> DirectCalls | PublicCalls:
    """The quick way where the bindings look as it needs them; else the public one."""
    try:
        from wasmtime import _bindings as ffi

        found: Any = ffi
        val, vec = found.wasmtime_component_val_t, found.wasm_byte_vec_t
        as_expected = (
            val.kind.offset == 0
            and val.of.offset == 8
            and found.wasmtime_component_valunion_t.string.offset == 0
            and vec.size.offset == 0
            and vec.data.offset == 8
            and ctypes.sizeof(val) >= 24
            and found.wasm_name_t is vec
            and len(found._wasmtime_component_func_call.argtypes) == 6
            and len(found._wasmtime_component_linker_instance_add_func.argtypes) == 6
            and len(found._wasm_byte_vec_new.argtypes) == 3
            and found._wasmtime_component_val_delete.restype is None
            and _get_string_kind() == 12
        )
        return DirectCalls(most, found) if as_expected else PublicCalls(most)
    except (ImportError, AttributeError, TypeError):
        return PublicCalls(most)


def _get_string_kind() -> int:
    from wasmtime import _ffi

    return int(_ffi.WASMTIME_COMPONENT_STRING.value)


PREFIX, SUFFIX = "yoi:host/", "@1.0.0"
_KINDS: dict[str, Any] = {"string": String, "u32": U32}
# interface -> function -> parameters; every one gives a string (spec yoi 2.1)
HOST: dict[str, dict[str, tuple[str, ...]]] = {
    "request": {"request": ("string",)},
    "websocket": {"open": ("string",), "send-text": ("u32", "string"), "recv": ("u32", "u32"), "close": ("u32",)},
    "fs": {"read": ("string",), "list": ("string",), "write": ("string",)},
}
# world -> function -> number of strings it takes; every one gives a string (spec yoi 2.2)
WORLDS: dict[str, dict[str, int]] = {
    "yoi:plugin/instance@1.0.0": {"start": 1, "handle-tool": 2, "handle-ingress": 2, "status": 0, "stop": 0},
    "yoi:plugin/tool@1.0.0": {"call": 2},
}


class ComponentRejected(Exception):
    """Why this component is not run."""


def check(engine: Engine, component: Component, world: str) -> list[str]:
    """Which of the host's interfaces it imports. Further exports are nobody's business."""
    kind = component.type
    imports = [_check_import(engine, name, item) for name, item in kind.imports(engine).items()]
    exports: dict[str, Any] = kind.exports(engine)
    for name, texts in WORLDS[world].items():
        item = exports.get(name)
        if item is None:
            raise ComponentRejected(f"component does not export expected `{world}` {name} function: there is no such export")
        wanted = ("string",) * texts
        if not _fits(item, wanted):
            detail = f"it must be func({', '.join(wanted)}) -> string"
            raise ComponentRejected(f"component does not export expected `{world}` {name} function: {detail}")
    return sorted(imports)


def _check_import(engine: Engine, name: str, item: Any) -> str:
    interface = name[len(PREFIX) : -len(SUFFIX)] if name.startswith(PREFIX) and name.endswith(SUFFIX) else ""
    known = HOST.get(interface)
    if known is None:
        why = "no WASI filesystem, ambient network, environment, or other imports are available"
        raise ComponentRejected(f"unsupported component import `{name}`; {why}")
    exports = getattr(_get_kind(item), "exports", None)
    if exports is None:
        raise ComponentRejected(f"component is incompatible: its import `{name}` is no interface")
    for function, kind in exports(engine).items():
        if function not in known:
            raise ComponentRejected(f"component is incompatible: there is no {function} in `{name}`")
        if not _fits(kind, known[function]):  # wasmtime does not look: our functions take what comes
            kinds = ", ".join(known[function])
            raise ComponentRejected(
                f"component is incompatible: {function} in `{name}` is func({kinds}) -> string, not what it says"
            )
    return interface


def _fits(item: Any, params: tuple[str, ...]) -> bool:
    found = _get_kind(item)
    return (
        isinstance(found, FuncType)
        and [type(kind) for _, kind in found.params] == [_KINDS[param] for param in params]
        and isinstance(found.result, String)
    )


def _get_kind(item: Any) -> Any:
    """What it is; None for what the library has no name for."""
    try:
        return getattr(item, "ty", item)
    except TypeError:
        return None
