"""Programs that run by themselves around and inside a box. Standard library only: they start without site-packages."""
