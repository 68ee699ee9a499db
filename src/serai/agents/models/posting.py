"""The HTTP client under an SDK. Ours, because theirs follows redirects with all that is sent, reads an error however long it is,
and asks the proxies of the process's own environment.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from serai.errors import BadSettings
from serai.limits import KIB, Limits

if TYPE_CHECKING:
    import httpx2

__all__ = ["http_client", "is_compressed", "proxy_for"]

_ERROR = 64 * KIB  # bytes of an error: more has nothing to say


def http_client(base_url: str, environ: Mapping[str, str], limits: Limits, *, local: bool) -> httpx2.AsyncClient:
    """A client for one server. What proxies and certificates it uses is in the environment that was given, and nowhere else."""
    import httpx2

    variable, proxy = ("", None) if local else proxy_for(base_url, environ)

    async def shorten(response: httpx2.Response) -> None:
        """Read the beginning of an error in place of the SDK, which would read it to its end, and unpacked."""
        if response.status_code < 300:
            return
        head = bytearray()
        whole = response.stream
        with suppress(TimeoutError, httpx2.HTTPError):  # the status says enough
            async with asyncio.timeout(limits.model_idle):
                async for piece in whole:  # type: ignore[union-attr]
                    head += piece
                    if len(head) >= _ERROR:
                        break
        await whole.aclose()  # type: ignore[union-attr]
        packed = is_compressed(response)
        response.headers.pop("content-encoding", None)
        response.stream = httpx2.ByteStream(b"" if packed else bytes(head[:_ERROR]))

    try:
        return httpx2.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
            proxy=proxy,
            verify=_certificates(environ),
            event_hooks={"response": [shorten]},
        )
    except (ValueError, ImportError, httpx2.InvalidURL):  # their words may show the password of the proxy
        raise BadSettings(f"{variable} names no proxy that can be used", hint="http://host:port is one") from None


def is_compressed(response: httpx2.Response) -> bool:
    """Against what was asked for: a few bytes can be unpacked to more than the machine holds."""
    return response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


def proxy_for(url: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The proxy through which a server is asked, if any, and the variable that names it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    for name in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").lower().split(","):
        without = name.strip().lstrip(".")
        if without and (without in ("*", f"{host}:{parts.port}") or f".{host}".endswith(f".{without}")):
            return "", None
    names = (f"{parts.scheme}_proxy", f"{parts.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    variable = next((name for name in names if environ.get(name, "").strip()), "")
    proxy = environ.get(variable, "").strip()
    return variable, (proxy if "://" in proxy else f"http://{proxy}") if proxy else None


def _certificates(environ: Mapping[str, str]) -> ssl.SSLContext | bool:
    """Whom to believe: as OpenSSL's variables say, else as is usual."""
    file, folder = environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None
    if file is None and folder is None:
        return True
    try:
        return ssl.create_default_context(cafile=file, capath=None if file else folder)
    except OSError as error:  # ssl.SSLError is one
        variable = "SSL_CERT_FILE" if file else "SSL_CERT_DIR"
        raise BadSettings(f"{variable}: {error.strerror or error}", who=file or folder or "") from None
