"""WASM components for the tests, written as text and assembled by wasmtime: no tool chain is needed.

Ready ones, each a function that gives the bytes of a component:

* `echo()`: the instance world. `start`, `status` and `stop` answer a PluginStatus, `handle-ingress` accepts. Its tools are `echo`
  (a ToolOutput whose `content` is the input), `count` (its `content` is how often it was called in this life: shows state) and
  `raw` (the input is the output, byte for byte). Any other name gives the ToolOutput `tool error: unsupported_tool`.
* `tool()`: the tool world, with the same tools in `call`; `count` always says 1 unless a store is kept.
* `caller(interface, function, *args)`: its tool `call` calls that host function and gives the reply in `content`. An argument is a
  `str` (that text), an `int` (u32) or `INPUT` (the tool's input). `where="start"` calls it in that export instead.
* `all_imports()`: `echo()` that imports the three interfaces and never calls them, as JS and Python guests do.
* `storm(interface, function, *args)`: its tool `call` calls that host function for ever.
* `spin(where)`, `bomb(where)`, `traps(where)`, `recursion(where)`: where is `call` (the tool `call`), `start`, `status`, `stop`,
  `ingress` or `core` (the start function of the core module). `oom()` takes all memory and does not trap.
* `huge(size)`, `bad_utf8()`, `surrogate()`, `out_of_bounds()`: what the tool `call` gives back.
* `unknown_import(name)`, `missing_export(name)`, `mistyped_export(name)`, `extra_export(name)`, `core_module()`.

To write another: `guest = Guest("instance", imports=("fs",))`, then `guest.on("start", guest.answer('{"state":"running"}'))`,
`guest.tool("name", body)`, `guest.build()`. A body is core instructions that leave the i32 of a result, as those of `answer`,
`output` and `counter` do. In it `$a $n` are pointer and length of the first text, `$b $m` of the second; `$i $j` are free locals.
`guest.host("fs", "read", INPUT)` leaves pointer and length of the reply; `guest.text("…")` those of a text.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "HOST", "INPUT", "Guest", "all_imports", "bad_utf8", "bomb", "caller", "core_module", "echo", "extra_export", "huge",
    "missing_export", "mistyped_export", "oom", "out_of_bounds", "recursion", "spin", "storm", "surrogate", "tool", "traps",
    "unknown_import",
]  # fmt: skip


class _Input:
    """The second text of the export: a tool's input."""


INPUT: Final = _Input()
Arg = str | int | _Input

STATUS = '{"state":"running"}'
# interface -> function -> parameters (spec yoi 2.1)
HOST: dict[str, dict[str, tuple[str, ...]]] = {
    "request": {"request": ("string",)},
    "websocket": {"open": ("string",), "send-text": ("u32", "string"), "recv": ("u32", "u32"), "close": ("u32",)},
    "fs": {"read": ("string",), "list": ("string",), "write": ("string",)},
}
_PARAMS = {
    "request": ("request-json",), "open": ("request-json",), "send-text": ("handle", "text"), "recv": ("handle", "timeout-ms"),
    "close": ("handle",), "read": ("request-json",), "list": ("request-json",), "write": ("request-json",),
}  # fmt: skip
_WORLDS: dict[str, dict[str, tuple[str, ...]]] = {
    "instance": {
        "start": ("config-json",),
        "handle-tool": ("name", "input-json"),
        "handle-ingress": ("name", "event-json"),
        "status": (),
        "stop": (),
    },
    "tool": {"call": ("tool-name", "input-json")},
}
_TOOLS = {"instance": "handle-tool", "tool": "call"}

# 16: what an export returns; 24: what a host function returned. A bump allocator, emptied after each call (`post`).
_LIBC = """
  (memory $memory (export "memory") {pages})
  (global $heap (mut i32) (i32.const {heap}))
  (func $realloc (export "realloc") (param $old i32) (param $was i32) (param $align i32) (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
    (global.set $heap (i32.add (local.get $at) (local.get $size)))
    (if (i32.gt_u (global.get $heap) (i32.shl (memory.size) (i32.const 16)))
      (then (if (i32.eq (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1))) (i32.const -1))
        (then unreachable))))
    (if (local.get $old) (then (memory.copy (local.get $at) (local.get $old) (local.get $was))))
    (local.get $at))
  (func $post (export "post") (param i32) (global.set $heap (i32.const {heap})))
"""
_FROM_LIBC = """
  (import "libc" "memory" (memory $memory {pages}))
  (import "libc" "realloc" (func $realloc (param i32 i32 i32 i32) (result i32)))
"""
_KIT = r"""
  (global $calls (mut i32) (i32.const 0))
  (global $out (mut i32) (i32.const 0))
  (global $end (mut i32) (i32.const 0))
  (func $ret (param $p i32) (param $n i32) (result i32)
    (i32.store (i32.const 16) (local.get $p)) (i32.store (i32.const 20) (local.get $n)) (i32.const 16))
  (func $is (param $p i32) (param $n i32) (param $q i32) (param $m i32) (result i32)
    (if (i32.ne (local.get $n) (local.get $m)) (then (return (i32.const 0))))
    (block $same (loop $next
      (br_if $same (i32.eqz (local.get $n)))
      (if (i32.ne (i32.load8_u (local.get $p)) (i32.load8_u (local.get $q))) (then (return (i32.const 0))))
      (local.set $p (i32.add (local.get $p) (i32.const 1)))
      (local.set $q (i32.add (local.get $q) (i32.const 1)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $next)))
    (i32.const 1))
  (func $begin (param $room i32)
    (global.set $out (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (local.get $room)))
    (global.set $end (global.get $out)))
  (func $byte (param $c i32)
    (i32.store8 (global.get $end) (local.get $c)) (global.set $end (i32.add (global.get $end) (i32.const 1))))
  (func $put (param $p i32) (param $n i32)
    (memory.copy (global.get $end) (local.get $p) (local.get $n)) (global.set $end (i32.add (global.get $end) (local.get $n))))
  (func $hex (param $c i32)
    (call $byte (i32.add (local.get $c) (select (i32.const 87) (i32.const 48) (i32.gt_u (local.get $c) (i32.const 9))))))
  (func $quoted (param $p i32) (param $n i32) (local $c i32)
    (call $byte (i32.const 34))
    (block $done (loop $next
      (br_if $done (i32.eqz (local.get $n)))
      (local.set $c (i32.load8_u (local.get $p)))
      (if (i32.or (i32.eq (local.get $c) (i32.const 34)) (i32.eq (local.get $c) (i32.const 92)))
        (then (call $byte (i32.const 92)) (call $byte (local.get $c)))
        (else (if (i32.lt_u (local.get $c) (i32.const 32))
          (then (call $put (i32.const 32) (i32.const 4))
            (call $hex (i32.shr_u (local.get $c) (i32.const 4))) (call $hex (i32.and (local.get $c) (i32.const 15))))
          (else (call $byte (local.get $c))))))
      (local.set $p (i32.add (local.get $p) (i32.const 1)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $next)))
    (call $byte (i32.const 34)))
  (func $number (param $v i32)
    (if (i32.ge_u (local.get $v) (i32.const 10)) (then (call $number (i32.div_u (local.get $v) (i32.const 10)))))
    (call $byte (i32.add (i32.const 48) (i32.rem_u (local.get $v) (i32.const 10)))))
  (func $done (result i32) (call $ret (global.get $out) (i32.sub (global.get $end) (global.get $out))))
  (func $forever (loop $again (br $again)))
  (func $deep (param $v i32) (result i32) (i32.add (call $deep (i32.add (local.get $v) (i32.const 1))) (i32.const 1)))
  (func $grow (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))))
"""


class Guest:
    """A component under construction."""

    def __init__(self, world: str = "instance", *, imports: tuple[str, ...] = (), pages: int = 1) -> None:
        self.world = world
        self.imports = imports
        self.pages = pages
        self.exports = dict(_WORLDS[world])
        self.types: dict[str, str] = {}  # an export with another type than its world's, as component text
        self._bodies: dict[str, str] = {}
        self._tools: list[tuple[str, str]] = []
        self._otherwise = ""
        self._fields: list[str] = []
        self._more: list[str] = []
        self._data: list[str] = [r'(data (i32.const 32) "\5cu00")']
        self._at = 64
        self._texts: dict[bytes, tuple[int, int]] = {}

    # -- instructions -----------------------------------------------------------------------------------------------------------

    def text(self, text: str | bytes) -> str:
        """Leaves pointer and length of that text."""
        raw = text.encode() if isinstance(text, str) else text
        if raw not in self._texts:
            escaped = "".join(f"\\{byte:02x}" for byte in raw)
            self._data.append(f'(data (i32.const {self._at}) "{escaped}")')
            self._texts[raw] = (self._at, len(raw))
            self._at += len(raw)
        at, size = self._texts[raw]
        return f"(i32.const {at}) (i32.const {size})"

    def answer(self, text: str | bytes) -> str:
        return f"(call $ret {self.text(text)})"

    def output(self, summary: str, content: str) -> str:
        """A ToolOutput whose content is the text that these instructions leave."""
        size = len(summary.encode()) + 64
        head = self.text(f'{{"summary":{_json(summary)},"content":')
        return (
            f"{content} (local.set $j) (local.set $i) "
            f"(call $begin (i32.add (i32.mul (local.get $j) (i32.const 6)) (i32.const {size}))) "
            f"(call $put {head}) "
            f"(call $quoted (local.get $i) (local.get $j)) (call $byte (i32.const 125)) (call $done)"
        )

    def counter(self) -> str:
        """A ToolOutput whose content is the number of calls so far."""
        head, tail = self.text('{"summary":"count","content":"'), self.text('"}')
        return (
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) (call $begin (i32.const 128)) "
            f"(call $put {head}) (call $number (global.get $calls)) (call $put {tail}) (call $done)"
        )

    def host(self, interface: str, function: str, *args: Arg) -> str:
        """Calls that host function; leaves pointer and length of its reply."""
        said = " ".join(self._arg(arg) for arg in args)
        return f"(call ${interface}.{function} {said} (i32.const 24)) (i32.load (i32.const 24)) (i32.load (i32.const 28))"

    def _arg(self, arg: Arg) -> str:
        if isinstance(arg, _Input):
            return "(local.get $b) (local.get $m)"
        return f"(i32.const {arg})" if isinstance(arg, int) else self.text(arg)

    # -- parts ------------------------------------------------------------------------------------------------------------------

    def on(self, export: str, body: str) -> Guest:
        self._bodies[export] = body
        return self

    def tool(self, name: str, body: str) -> Guest:
        self._tools.append((name, body))
        return self

    def otherwise(self, body: str) -> Guest:
        """What any other tool does."""
        self._otherwise = body
        return self

    def field(self, core: str) -> Guest:
        """More of the core module, such as a `(start …)`."""
        self._fields.append(core)
        return self

    def more(self, text: str) -> Guest:
        """More of the component, before its own parts: imports of other things."""
        self._more.append(text)
        return self

    # -- putting together -------------------------------------------------------------------------------------------------------

    def component(self) -> str:
        """The text of the component."""
        functions = "\n".join(self._function(name, params) for name, params in self.exports.items())
        heap = (self._at + 15) // 16 * 16
        pages = max(self.pages, heap // 65536 + 1)
        libc = _LIBC.format(pages=pages, heap=heap)
        inner = "\n".join([_KIT, *self._fields, functions, *self._data])
        parts = ["(component", *self._more, *(_import(name) for name in self.imports)]
        if self.imports:
            parts += [f"(core module $libc_code {libc})", "(core instance $libc (instantiate $libc_code))"]
            wanted = "\n".join(_core_import(name) for name in self.imports)
            parts.append(f"(core module $main_code {wanted} {_FROM_LIBC.format(pages=pages)} {inner})")
        else:
            parts += [f"(core module $main_code {libc} {inner})", "(core instance $libc (instantiate $main_code))"]
        parts.append('(alias core export $libc "memory" (core memory $memory))')
        parts.append('(alias core export $libc "realloc" (core func $realloc))')
        parts.append('(alias core export $libc "post" (core func $post))')
        parts += [_lower(name) for name in self.imports]
        if self.imports:
            given = " ".join(f'(with "{name}" (instance ${name}_core))' for name in self.imports)
            parts.append(f'(core instance $main (instantiate $main_code (with "libc" (instance $libc)) {given}))')
        main = "$main" if self.imports else "$libc"
        parts += [self._lift(main, name, params) for name, params in self.exports.items()]
        return "\n".join([*parts, ")"])

    def build(self) -> bytes:
        from wasmtime import wat2wasm

        return bytes(wat2wasm(self.component()))

    def _function(self, name: str, params: tuple[str, ...]) -> str:
        if name == _TOOLS[self.world]:
            body = self._bodies.get(name) or self._dispatch()
        else:
            body = self._bodies.get(name) or self.answer(STATUS if name != "handle-ingress" else '{"accepted":true}')
        said = "".join(f"(param ${first} i32) (param ${second} i32) " for first, second in (("a", "n"), ("b", "m"))[: len(params)])
        return f'(func (export "{name}") {said}(result i32) (local $i i32) (local $j i32)\n  {body})'

    def _dispatch(self) -> str:
        error = '{"summary":"tool error: unsupported_tool","content":"{\\"error\\":{\\"code\\":\\"unsupported_tool\\"}}"}'
        text = self._otherwise or self.answer(error)
        for name, body in reversed(self._tools):
            text = f"(if (result i32) (call $is (local.get $a) (local.get $n) {self.text(name)})\n  (then {body})\n  (else {text}))"
        return text

    def _lift(self, main: str, name: str, params: tuple[str, ...]) -> str:
        if name in self.types:
            return self.types[name].replace("$main", main)
        said = " ".join(f'(param "{param}" string)' for param in params)
        return (
            f'(func (export "{name}") {said} (result string) (canon lift (core func {main} "{name}") '
            "(memory (core memory $memory)) (realloc (core func $realloc)) (post-return (core func $post))))"
        )


def _json(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _import(interface: str) -> str:
    functions = " ".join(
        f'(export "{name}" (func '
        + " ".join(f'(param "{param}" {kind})' for param, kind in zip(_PARAMS[name], kinds, strict=True))
        + " (result string)))"
        for name, kinds in HOST[interface].items()
    )
    return f'(import "yoi:host/{interface}@1.0.0" (instance ${interface} {functions}))'


def _core_import(interface: str) -> str:
    return "\n".join(
        f'(import "{interface}" "{name}" (func ${interface}.{name} (param '
        + " ".join("i32 i32" if kind == "string" else "i32" for kind in kinds)
        + " i32)))"
        for name, kinds in HOST[interface].items()
    )


def _lower(interface: str) -> str:
    lowered = "\n".join(
        f'(core func ${interface}_{name} (canon lower (func ${interface} "{name}") '
        "(memory (core memory $memory)) (realloc (core func $realloc))))"
        for name in HOST[interface]
    )
    exports = " ".join(f'(export "{name}" (func ${interface}_{name}))' for name in HOST[interface])
    return f"{lowered}\n(core instance ${interface}_core {exports})"


# -- ready ones ------------------------------------------------------------------------------------------------------------------


def _with_tools(guest: Guest) -> Guest:
    guest.tool("echo", guest.output("echo", "(local.get $b) (local.get $m)"))
    guest.tool("count", guest.counter())
    return guest.tool("raw", "(call $ret (local.get $b) (local.get $m))")


def echo(world: str = "instance", *, imports: tuple[str, ...] = ()) -> bytes:
    return _with_tools(Guest(world, imports=imports)).build()


def tool(*, imports: tuple[str, ...] = ()) -> bytes:
    return echo("tool", imports=imports)


def all_imports(world: str = "instance") -> bytes:
    return echo(world, imports=tuple(HOST))


def caller(
    interface: str, function: str, *args: Arg, world: str = "instance", where: str = "tool", imports: tuple[str, ...] = ()
) -> bytes:
    """Calls a host function in its tool `call`, or in the export `where`."""
    guest = _with_tools(Guest(world, imports=tuple(dict.fromkeys((interface, *imports)))))
    if where == "tool":
        guest.tool("call", guest.output(f"{interface}.{function}", guest.host(interface, function, *args)))
    else:
        guest.on(where, f"{guest.host(interface, function, *args)} drop drop {guest.answer(STATUS)}")
    return guest.build()


def storm(interface: str, function: str, *args: Arg) -> bytes:
    """Its tool `call` calls that host function for ever."""
    guest = _with_tools(Guest(imports=(interface,)))
    body = f"(loop $again {guest.host(interface, function, *args)} drop drop (br $again)) unreachable"
    return guest.tool("call", body).build()


def _at(where: str, doing: str) -> bytes:
    """That is done in that export, in the tool `call`, or in the start function of the core module (`core`)."""
    guest = _with_tools(Guest())
    if where == "core":
        return guest.field(f"(func $begins {doing}) (start $begins)").build()
    body = f"{doing} {guest.answer(STATUS)}"
    if where == "call":
        return guest.tool("call", body).build()
    return guest.on({"ingress": "handle-ingress"}.get(where, where), body).build()


def spin(where: str = "call") -> bytes:
    return _at(where, "(call $forever)")


def bomb(where: str = "call") -> bytes:
    return _at(where, "(call $grow) unreachable")


def oom() -> bytes:
    """Takes all the memory it gets and then goes on as if nothing were."""
    return _at("call", "(call $grow)")


def traps(where: str = "call") -> bytes:
    return _at(where, "unreachable")


def recursion(where: str = "call") -> bytes:
    return _at(where, "(drop (call $deep (i32.const 0)))")


def huge(size: int) -> bytes:
    """Its tool `call` gives that many `x`."""
    guest = _with_tools(Guest())
    body = (
        f"(local.set $i (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (i32.const {size}))) "
        f"(memory.fill (local.get $i) (i32.const 120) (i32.const {size})) (call $ret (local.get $i) (i32.const {size}))"
    )
    return guest.tool("call", body).build()


def bad_utf8() -> bytes:
    guest = _with_tools(Guest())
    return guest.tool("call", guest.answer(b'{"summary":"\xff\xfe"}')).build()


def surrogate() -> bytes:
    """A lone surrogate as its three bytes: not UTF-8 either."""
    guest = _with_tools(Guest())
    return guest.tool("call", guest.answer(b'{"summary":"\xed\xa0\x80"}')).build()


def out_of_bounds() -> bytes:
    return _with_tools(Guest()).tool("call", "(call $ret (i32.const -16) (i32.const 1024))").build()


def unknown_import(name: str = "wasi:cli/environment@0.2.0") -> bytes:
    return _with_tools(Guest()).more(f'(import "{name}" (instance (export "go" (func))))').build()


def missing_export(name: str, world: str = "instance") -> bytes:
    guest = _with_tools(Guest(world))
    del guest.exports[name]
    return guest.build()


def mistyped_export(name: str, world: str = "instance") -> bytes:
    """It takes and gives a u32; and its core start function would trap: none of it may run."""
    guest = _with_tools(Guest(world)).field('(func (export "wrong") (param i32) (result i32) (local.get 0))')
    guest.field("(func $begins unreachable) (start $begins)")
    guest.types[name] = f'(func (export "{name}") (param "n" u32) (result u32) (canon lift (core func $main "wrong")))'
    return guest.build()


def extra_export(name: str = "init") -> bytes:
    guest = _with_tools(Guest()).field('(func (export "extra") (param i32) (result i32) (local.get 0))')
    guest.exports[name] = ()
    guest.types[name] = f'(func (export "{name}") (param "n" u32) (result u32) (canon lift (core func $main "extra")))'
    return guest.build()


def core_module() -> bytes:
    from wasmtime import wat2wasm

    return bytes(wat2wasm("(module)"))
