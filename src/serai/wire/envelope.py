"""The objects of JSON-RPC around what is said, as they are read and written (sans-IO), for `wire.jsonrpc`."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from serai.wire.codec import Codec, Decodes
from serai.wire.folding import FoldingDecoder

__all__ = ["FOLDED", "NOTHING", "PLAIN", "Envelope", "Form", "Outgoing"]

NOTHING = Raw()


class Envelope(msgspec.Struct, gc=False):
    """What came: a member that is not there is `NOTHING`."""

    id: Raw = NOTHING
    method: str | None = None
    params: Raw = NOTHING
    result: Raw = NOTHING
    error: Raw = NOTHING


class _FoldedEnvelope(Envelope, forbid_unknown_fields=True, gc=False):
    """As long as a frame has these members alone, its keys are exact, and it is read at once."""

    jsonrpc: Raw = NOTHING


class Error(msgspec.Struct, gc=False):
    message: str = ""
    code: int | float = 0
    data: Raw = NOTHING


class _FoldedError(Error, forbid_unknown_fields=True, gc=False):
    pass


class Outgoing(msgspec.Struct, omit_defaults=True, gc=False):
    jsonrpc: str  # required, so that it is never omitted
    id: int | Raw | msgspec.UnsetType = msgspec.UNSET
    method: str = ""
    params: Any = msgspec.UNSET
    result: Any = msgspec.UNSET
    error: Any = msgspec.UNSET


class Form(NamedTuple):
    """How the frames of a connection are read: what `kind` they become, and their error objects."""

    kind: type[Envelope]
    codec: Codec[Envelope]
    errors: Decodes[Error]


PLAIN = Form(Envelope, Codec(Envelope, kind_field="method"), msgspec.json.Decoder(Error))
FOLDED = Form(_FoldedEnvelope, Codec(_FoldedEnvelope, kind_field="method", folded=True), FoldingDecoder(_FoldedError))
