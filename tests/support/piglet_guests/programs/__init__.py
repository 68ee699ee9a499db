"""What runs in a stand-in guest. Standard library only: it is started by itself, with this source on its path and no more."""
