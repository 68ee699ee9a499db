"""For authors of extensions and plugins: new folders, bundles, builds, packages. Nothing here prints; callers do.

`scaffold` writes new folders, `bundle` packs an extension into one file, `build` and `build_python` make components, `component`
reads and assembles them, `plugin_package` opens, checks and packs a plugin.
"""
