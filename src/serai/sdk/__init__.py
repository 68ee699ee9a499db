"""For authors: an extension in Python, written once (docs/extensions.md).

    from serai.sdk import Extension
    ext = Extension("weather", version="1.0")

    @ext.tool
    async def weather(city: str) -> str:
        "The current weather in a city."
        return f"{city}: 16 degrees, fog"

    ext.main()

Standard library only, and as little of it as can be before hello is out: a bundle has nothing else, and a host waits.
"""

from serai.lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__)
