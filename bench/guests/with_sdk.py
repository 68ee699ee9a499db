"""The same guest with the SDK: `echo` on threads, `later` on the event loop."""

from serai.sdk import Extension

ext = Extension("echo", "1")


@ext.tool
def echo(text: str) -> str:
    """Says it again."""
    return text


@ext.tool
async def later(text: str) -> str:
    """Says it again, on the event loop."""
    return text


ext.main()
