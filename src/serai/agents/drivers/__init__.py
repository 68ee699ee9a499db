"""Agents that are not the resident: one package each, with its session factory. The table is `agents.factory.AGENTS`."""
