"""With the SDK and sync handlers alone: the event loop is never there."""

from serai.sdk import Extension

ext = Extension("echo", "1")


@ext.tool
def echo(text: str) -> str:
    """Says it again."""
    return text


ext.main()
