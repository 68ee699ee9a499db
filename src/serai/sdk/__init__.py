"""For authors: an extension in Python, written once (docs/extensions.md).

    from serai.sdk import Extension
    ext = Extension("weather", version="1.0")

    @ext.tool
    async def weather(city: str) -> str:
        "The current weather in a city."
        return f"{city}: 16 degrees, fog"

    ext.main()

Standard library only, and as little of it as possible before hello is sent: a bundle has nothing else, and a host waits.

Authors use `extension` (decorators), `answers` (what handlers return), `events` (what they get), `host` and `services` (what they
may request), `hook` (box hooks). Behind them: `registrations`, `schema`, `dispatcher`, `workers`, `current_call`, `host_requests`,
`host_records`, `stdio`, and `adapters`, one for each dialect.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
