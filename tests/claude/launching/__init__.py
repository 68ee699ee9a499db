"""How Claude Code is found and started."""
