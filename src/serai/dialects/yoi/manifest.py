"""The manifest of a plugin as the host reads any manifest. A guest's name is who it is there, so the name is the manifest's id."""

from __future__ import annotations

from dataclasses import dataclass

from serai.plugins import manifest as manifests
from serai.plugins.manifest import HAS_SWITCH, PluginManifest, build_argv, set_enabled

__all__ = ["HAS_SWITCH", "PluginDescription", "build_argv", "describe", "parse", "set_enabled"]


@dataclass(frozen=True, slots=True)
class PluginDescription:
    plugin: PluginManifest

    @property
    def name(self) -> str:
        return self.plugin.id

    @property
    def version(self) -> str:
        return self.plugin.version

    @property
    def language(self) -> str:
        return "wasm"

    @property
    def description(self) -> str:
        return self.plugin.description or self.plugin.name

    @property
    def enabled(self) -> bool:
        """There is no such key: an enablement in the settings is what switches a plugin on."""
        return True


def describe(plugin: PluginManifest) -> PluginDescription:
    return PluginDescription(plugin)


def parse(text: bytes) -> PluginDescription:
    """The manifest, or `ManifestError`."""
    return PluginDescription(manifests.parse(text))
