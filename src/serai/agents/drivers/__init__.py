"""Agents that are driven: a folder each, with what opens it in `opening`. The table is `agents.opening.AGENTS`."""
