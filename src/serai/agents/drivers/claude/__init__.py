"""Claude Code, driven: where its program is (`finding`), how it is started (`options`, `command`, `environment`, `settings`)."""
