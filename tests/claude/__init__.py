"""Claude Code: its dialect, its driver, its frames as text."""
