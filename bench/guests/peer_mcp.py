"""The same tools as a server of the official `mcp` package, as its own documentation writes one."""

from mcp.server.mcpserver import MCPServer

mcp = MCPServer("echo", log_level="ERROR")


@mcp.tool(structured_output=False)  # type: ignore[untyped-decorator, unused-ignore]  # only in the peers' environment
def echo(text: str) -> str:
    """Says it again."""
    return text


@mcp.tool(structured_output=False)  # type: ignore[untyped-decorator, unused-ignore]
async def later(text: str) -> str:
    """Says it again, on the event loop."""
    return text


mcp.run()
