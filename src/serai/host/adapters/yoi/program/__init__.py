"""What runs in a plugin's worker process, and in the one that compiles: by itself, with wasmtime and the standard library alone.

The folder is imported as the package `program`, not through `serai` (`compiling.command`): a worker loads only what it needs.
"""
