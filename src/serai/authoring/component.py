"""Components in pure Python: one made of a core module, and what one imports and exports, read without running it.

A compiler for C gives a core module. For a fixed world the component around it is always the same but for the interfaces it uses,
so it is assembled from text with a placeholder inside, whose bytes are then replaced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from serai.dialects.yoi import worlds
from serai.errors import BadExtension, SpawnFailed

COMPONENT = bytes.fromhex("0061736d0d000100")
CORE = bytes.fromhex("0061736d01000000")
_CORE_MODULE, _IMPORTS, _EXPORTS = 1, 10, 11  # sections of a component
_CORE_IMPORTS, _CORE_EXPORTS = 2, 7  # sections of a core module
_REALLOC, _MEMORY, _POST = "cabi_realloc", "memory", "cabi_post_"


class Names(NamedTuple):
    imports: tuple[str, ...]
    exports: tuple[str, ...]


# -- a component around a core module ---------------------------------------------------------------------------------------------


def assemble(text: str) -> bytes:
    """The bytes of a component, or of a core module, that is written as text."""
    try:
        from wasmtime import WasmtimeError, wat2wasm
    except ImportError:
        raise SpawnFailed("wasmtime is not installed", hint="pip install 'serai[wasm]'") from None
    try:
        return bytes(wat2wasm(text))
    except WasmtimeError as error:
        raise BadExtension(f"it is no component text: {error}", hint="correct it") from None


def wrap_module(core: bytes, world: str) -> bytes:
    """The component of this world whose code is this core module.

    The module keeps to what tools for components agree on: it exports `memory`, `cabi_realloc` and the world's functions, and
    perhaps `cabi_post_` and a function's name, which frees what that gave; it imports from `yoi:host/…@1.0.0`.
    """
    found = read_core_names(core)
    wanted = (_MEMORY, _REALLOC, *worlds.EXPORTS[world])
    if missing := [name for name in wanted if name not in found.exports]:
        raise BadExtension(f"the module does not export {', '.join(missing)}", hint=f"the world {world} needs all of {wanted}")
    lines = ["(component"]
    calls = [(api, name) for api, functions in worlds.HOST.items() for name in functions]
    used = [(api, name) for api, name in calls if (worlds.format_import(api), name) in _read_core_imports(core)]
    known = {(worlds.format_import(api), name) for api, name in calls}
    if strange := [pair for pair in _read_core_imports(core) if pair not in known]:
        module, name = strange[0]
        raise BadExtension(f"the module imports {name!r} of {module!r}, which no host has", hint="link nothing but yoi:host")
    apis = list(dict.fromkeys(api for api, _ in used))
    lines += [_format_import(api) for api in apis]
    lines.append(_format_placeholder(world, used, found))
    lines += _format_shim(used) if used else []
    given = " ".join(f'(with "{worlds.format_import(api)}" (instance $core-{api}))' for api in apis)
    lines.append(f"(core instance $main (instantiate $code {given}))")
    lines.append(f'(alias core export $main "{_MEMORY}" (core memory $memory))')
    lines.append(f'(alias core export $main "{_REALLOC}" (core func $realloc))')
    lines += _lower_functions(used) if used else []
    lines += [_lift_function(name, parameters, found) for name, parameters in worlds.EXPORTS[world].items()]
    return _replace_module(assemble("\n".join([*lines, ")"])), core)


def _format_core_type(parameters: worlds.Parameters, *, result: bool) -> str:
    """Texts are a place and a length; a result that is text is left where the caller says, or where the callee does."""
    flat = " ".join("i32 i32" if kind == "string" else "i32" for _, kind in parameters)
    taken = " ".join([*flat.split(), *([] if result else ["i32"])])
    return (f"(param {taken})" if taken else "") + (" (result i32)" if result else "")


def _format_import(api: str) -> str:
    functions = " ".join(
        f'(export "{name}" (func {" ".join(f"""(param "{called}" {kind})""" for called, kind in parameters)} (result string)))'
        for name, parameters in worlds.HOST[api].items()
    )
    return f'(import "{worlds.format_import(api)}" (instance ${api} {functions}))'


def _format_placeholder(world: str, used: Sequence[tuple[str, str]], found: Names) -> str:
    """The first core module, in whose place the real one goes: it has the same names, and no code."""
    imports = [
        f'(import "{worlds.format_import(api)}" "{name}" (func {_format_core_type(worlds.HOST[api][name], result=False)}))'
        for api, name in used
    ]
    functions = [
        f'(func (export "{name}") {_format_core_type(parameters, result=True)} unreachable)'
        for name, parameters in worlds.EXPORTS[world].items()
    ]
    posts = [f'(func (export "{name}") (param i32) unreachable)' for name in found.exports if name.startswith(_POST)]
    realloc = f'(func (export "{_REALLOC}") (param i32 i32 i32 i32) (result i32) unreachable)'
    return "\n".join(["(core module $code", *imports, f'(memory (export "{_MEMORY}") 1)', realloc, *functions, *posts, ")"])


def _format_shim(used: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Host functions need the module's memory, and the module needs them first: it gets functions that look in a table."""
    yield f'(core module $shim-code (table (export "table") {len(used)} funcref)'
    for number, (api, name) in enumerate(used):
        kind = _format_core_type(worlds.HOST[api][name], result=False)
        passed = " ".join(f"local.get {place}" for place in range(kind.count("i32")))
        yield f'(func (export "{number}") {kind} {passed} i32.const {number} call_indirect {kind})'
    yield ")(core instance $shim (instantiate $shim-code))"
    for api in dict.fromkeys(api for api, _ in used):
        numbered = [(number, name) for number, (of, name) in enumerate(used) if of == api]
        exports = " ".join(f'(export "{name}" (func $shim "{number}"))' for number, name in numbered)
        yield f"(core instance $core-{api} {exports})"


def _lower_functions(used: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The real host functions, and their way into that table."""
    options = "(memory (core memory $memory)) (realloc (core func $realloc))"
    for number, (api, name) in enumerate(used):
        yield f'(core func $host-{number} (canon lower (func ${api} "{name}") {options}))'
    yield f'(core module $fill-code (import "" "table" (table {len(used)} funcref))'
    for number, (api, name) in enumerate(used):
        yield f'(import "" "{number}" (func {_format_core_type(worlds.HOST[api][name], result=False)}))'
    yield f"(elem (i32.const 0) func {' '.join(str(number) for number in range(len(used)))}))"
    given = " ".join(f'(export "{number}" (func $host-{number}))' for number in range(len(used)))
    yield f'(core instance (instantiate $fill-code (with "" (instance (export "table" (table $shim "table")) {given}))))'


def _lift_function(name: str, parameters: worlds.Parameters, found: Names) -> str:
    taken = " ".join(f'(param "{called}" {kind})' for called, kind in parameters)
    post = f'(post-return (core func $main "{_POST}{name}"))' if f"{_POST}{name}" in found.exports else ""
    return (
        f'(func (export "{name}") {taken} (result string) (canon lift (core func $main "{name}") '
        f"(memory (core memory $memory)) (realloc (core func $realloc)) {post}))"
    )


def _replace_module(component: bytes, core: bytes) -> bytes:
    """The first core module's bytes replaced."""
    parts, replaced = [component[:8]], False
    for section, old in _iter_sections(component):
        body = old
        if section == _CORE_MODULE and not replaced:
            body, replaced = core, True
        parts.append(bytes([section]) + _encode_uleb(len(body)) + body)
    return b"".join(parts)


# -- what is in a file ------------------------------------------------------------------------------------------------------------


def read_interface_names(component: bytes) -> Names:
    """What a component imports and exports; `ValueError` when it cannot be read."""
    if not component.startswith(COMPONENT):
        raise ValueError("it does not begin as a component does")
    imports: list[str] = []
    exports: list[str] = []
    for section, body in _iter_sections(component):
        if section not in (_IMPORTS, _EXPORTS):
            continue
        reader = _Reader(body)
        for _ in range(reader.read_number()):
            reader.read_byte()  # how the name is written
            name = reader.read_text()
            if section == _EXPORTS:
                reader.skip_sort()
                reader.read_number()
                if reader.read_byte():  # its type is said, too
                    reader.skip_type()
                exports.append(name)
            else:
                reader.skip_type()
                imports.append(name)
    return Names(tuple(imports), tuple(exports))


def find_mismatch(found: Names, world: str) -> tuple[str, str] | None:
    """Why no host would run a component of this world, and what to do; as a host sees it before anything runs (spec yoi 2.3)."""
    known = [worlds.format_import(api) for api in worlds.HOST]
    if others := [name for name in found.imports if name not in known]:
        return f"imports {', '.join(others)}, which no host of plugins has", "a plugin has no WASI: leave out what needs it"
    if missing := [name for name in worlds.EXPORTS[world] if name not in found.exports]:
        text = f"does not export {', '.join(missing)}, which the world {world} has"
        return text, "write it, or name the other world in plugin.toml"
    return None


def read_core_names(core: bytes) -> Names:
    """Which modules a core module imports from, and what it exports."""
    if not core.startswith(CORE):
        raise BadExtension("the compiler gave no core module", hint="it has to compile for wasm32")
    exports: list[str] = []
    for section, body in _iter_sections(core):
        if section == _CORE_EXPORTS:
            reader = _Reader(body)
            for _ in range(reader.read_number()):
                exports.append(reader.read_text())
                reader.read_byte()
                reader.read_number()
    return Names(tuple(dict.fromkeys(module for module, _ in _read_core_imports(core))), tuple(exports))


def _read_core_imports(core: bytes) -> list[tuple[str, str]]:
    """The functions that a core module imports: module and name."""
    found: list[tuple[str, str]] = []
    for section, body in _iter_sections(core):
        if section != _CORE_IMPORTS:
            continue
        reader = _Reader(body)
        for _ in range(reader.read_number()):
            found.append((reader.read_text(), reader.read_text()))
            if reader.read_byte() != 0:
                module, name = found[-1]
                raise BadExtension(f"the module imports {name!r} of {module!r}, which is no function", hint="let it have its own")
            reader.read_number()
    return found


def _iter_sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    reader = _Reader(module, 8)
    while reader.at < len(module):
        section = reader.read_byte()
        yield section, reader.read_bytes(reader.read_number())


class _Reader:
    """Bytes of the binary format, from a place on."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def read_byte(self) -> int:
        return self.read_bytes(1)[0]

    def read_bytes(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise ValueError("it ends too soon")
        self.at += count
        return self.data[self.at - count : self.at]

    def read_number(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.read_byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number in it is too long")

    def read_text(self) -> str:
        return self.read_bytes(self.read_number()).decode()

    def skip_sort(self) -> None:
        if self.read_byte() == 0:  # of the core: one more byte
            self.read_byte()

    def skip_type(self) -> None:
        """What an import or an export is: its kind and a type's index, but for bounds of types and values."""
        kind = self.read_byte()
        if kind == 0:  # a core module says so twice
            self.read_byte()
        if kind != 3 or self.read_byte() == 0:  # a type that is a fresh resource has no index
            self.read_number()


def _encode_uleb(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
