"""The interfaces of the kernel that Python does not offer: system calls, Landlock, seccomp. Standard library only.

Importing this package loads nothing; its modules import each other relatively, so that a program can load them by their folder.
"""
