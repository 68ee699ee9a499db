"""Programs that run in a process of their own: the standard library only, so that they start quickly."""
