"""What runs in a plugin's worker process and in the compiler's, with wasmtime and the standard library only.

The folder is imported as the package `program`, not through `serai` (`compiler.build_command`): a worker loads only what it needs.
"""
