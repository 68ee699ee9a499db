"""Tests of MCP: the dialect, the endpoint, and what brings an agent to it."""
