"""How much a plugin may have, each bound with the origin's number beside ours (spec yoi 17.1).

The origin's store limits refuse almost every plugin that a tool chain has made (spec yoi 17.1), and its 8 MiB of wasm stack
would abort the process: so the defaults are workable ones, and `UPSTREAM` is the origin's as a preset, but for the stack.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from serai.limits import KIB, MIB

Preset = Literal["default", "upstream"]


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be set under `[plugins.bounds]`; the sizes of documents (64 KiB and so on) are the protocol's and not among them."""

    memory: int = 64 * MIB  # bytes of each linear memory; the process bounds all of them together
    table_elements: int = 20_000
    instances: int = 64
    tables: int = 16
    memories: int = 8
    stack: int = 1 * MIB  # bytes of wasm stack; more than 2 MiB aborts the process
    fuel: int = 0  # for instantiation and for each call; 0: none
    start: float = 5.0  # seconds for instantiation and `start`, and for `status` and `stop`
    tool: float = 5.0  # seconds, for a tool without a host interface (spec yoi 14.3)
    tool_with_host: float = 30.0  # seconds, for one with
    ingress: float = 1.0  # seconds for one event
    request: float = 5.0  # seconds for one exchange
    package: int = 32 * MIB
    file: int = 32 * MIB
    expanded: int = 64 * MIB
    entries: int = 512
    packages: int = 128  # in one store
    ratio: int = 100  # of an entry's size to what it takes in the archive; 0: nothing may be compressed
    strict_imports: bool = False  # an imported interface without a grant refuses the plugin (spec yoi 2.3)
    deny_private: bool = True  # private, loopback and link-local addresses are refused unless the grant says so


STACK_MOST = 2 * MIB
DOCUMENT = 64 * KIB  # bytes of any text that goes into a plugin or comes out of it

DEFAULT = Bounds()
UPSTREAM = Bounds(
    memory=2 * MIB, table_elements=256, instances=1, tables=1, memories=1, fuel=5_000_000, tool=1.0, tool_with_host=1.0,
    package=16 * MIB, file=8 * MIB, ratio=0, strict_imports=True, deny_private=False,
)  # fmt: skip
PRESETS: dict[Preset, Bounds] = {"default": DEFAULT, "upstream": UPSTREAM}
