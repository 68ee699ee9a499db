"""What drivers of agent programs share; it knows no agent. `process` watches a child, `tool_endpoint` serves tools over MCP."""
