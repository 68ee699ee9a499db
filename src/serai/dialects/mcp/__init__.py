"""The dialect `mcp`: the Model Context Protocol over JSON-RPC, tools only."""
