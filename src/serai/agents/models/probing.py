"""Which models the servers on this machine have: a person names such a server in `models.toml`, and what it serves it tells itself.

Only those are asked that are on this machine and speak like OpenAI's (spec piglet 7.1, `host/syncModels`). A server that does not
answer, or not sensibly, has none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

import msgspec

from serai.agents.models.catalogue import Catalogue
from serai.agents.models.providers import access, is_local
from serai.errors import SeraiError
from serai.limits import MIB, Limits
from serai.model.provider import Cost, Model

__all__ = ["probe"]

log = logging.getLogger("serai.agents")

_SECONDS = 5.0  # for one server: it is on this machine
_LONGEST = 1 * MIB  # of its answer
_MOST = 1000  # models of one server


class _Served(msgspec.Struct, frozen=True):
    id: str


class _List(msgspec.Struct, frozen=True):
    data: list[_Served] = []


_list = msgspec.json.Decoder(_List)


async def probe(catalogue: Catalogue, environ: Mapping[str, str], limits: Limits) -> tuple[Model, ...]:
    """What the servers that the catalogue names have, one model of each as the pattern for the others."""
    servers: dict[str, Model] = {}
    for model in catalogue:
        if model.base_url and model.api.startswith("openai") and is_local(model.base_url):
            servers.setdefault(model.base_url, model)
    found = await asyncio.gather(*(_served(model, environ, limits) for model in servers.values()))
    return tuple(model for models in found for model in models)


async def _served(model: Model, environ: Mapping[str, str], limits: Limits) -> Sequence[Model]:
    try:
        import httpx2
    except ImportError:
        log.info("%s is not asked for its models: pip install 'serai[models]'", model.provider)
        return ()
    try:
        async with asyncio.timeout(_SECONDS):
            ids = [one.id for one in _list.decode(await _asked(model, environ, limits)).data[:_MOST]]
    except (SeraiError, httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError, OSError, ValueError) as error:
        log.info("%s does not tell its models: %s", model.provider, type(error).__name__)  # its text may show an address with a key
        return ()
    plain = msgspec.structs.replace(model, reasoning=False, context_window=0, max_tokens=0, cost=Cost())
    return [msgspec.structs.replace(plain, id=id, name=id) for id in dict.fromkeys(ids) if id and id == id.strip()]


async def _asked(model: Model, environ: Mapping[str, str], limits: Limits) -> bytes:
    from serai.agents.models.posting import http_client

    way = access(model, environ)
    headers = {**({"Authorization": f"Bearer {way.key}"} if way.key else {}), **way.headers}
    async with (
        http_client(way.base_url, environ, limits, local=True) as client,
        client.stream("GET", f"{way.base_url.rstrip('/')}/models", headers=headers) as response,
    ):
        response.raise_for_status()
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > _LONGEST:
                raise ValueError("its list is too long")
        return bytes(content)
