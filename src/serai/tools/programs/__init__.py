"""What runs in a process of its own: the standard library only, so that it starts quickly."""
