"""The dialect claude: Claude Code, driven over its standard streams (spec agents 2)."""
