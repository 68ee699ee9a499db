"""A plugin under test, in this very process: its component on wasmtime, or the Python source that it is to be built of.

    with YoiSource(HERE) as plugin:                                   # an extension in Python, not built yet
        assert plugin.text("example_echo", {"text": "hi"}) == "hi"

    with YoiHost(HERE, host={"fs.read": lambda request: …}) as plugin:  # the built component
        assert plugin.call("example_echo", {"text": "hi"}) == {"summary": "hi"}

The functions of the host are the test's own: JSON text in, JSON text out; what is not given is refused. There are no limits and no
deadlines here, so this is for plugins of one's own: a host runs them in a process without any rights.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

from serai.dialects.yoi import worlds
from serai.errors import BadExtension, SpawnFailed
from serai.plugins import manifest as manifests

__all__ = ["YoiHost", "YoiSource"]

HostFunction = Callable[..., str]
_COMPONENT = bytes.fromhex("0061736d0d000100")


class _Plugin:
    """What both can do: the exports, with their documents as Python has them."""

    def __init__(self, folder: str | Path, *, config: Any = None, host: Mapping[str, HostFunction] | None = None) -> None:
        self.folder = Path(folder)
        self.manifest = manifests.parse((self.folder / "plugin.toml").read_bytes())
        runtime = self.manifest.runtime
        if runtime is None:
            raise BadExtension("it has no [runtime]", who=str(self.folder), hint="name its component in plugin.toml")
        self.world = worlds.WORLDS[runtime.world]
        self._component = self.folder / runtime.component
        self._config = config
        self._host = dict(host or {})
        self._trapped = False  # after that nobody can enter it any more

    def __enter__(self) -> Self:
        self._open()
        if self.world == "instance":
            started = self._call_json("start", json.dumps(self._config))
            if "error" in started:
                raise BadExtension(f"it did not start: {started['error']}", who=str(self.folder))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.world == "instance" and kind is None and not self._trapped:
            self._call_json("stop")

    def call(self, tool: str, arguments: Any = None) -> dict[str, Any]:
        """What a tool puts out: `summary`, and perhaps `content`."""
        name = "handle-tool" if self.world == "instance" else "call"
        output = self._call_json(name, tool, json.dumps({} if arguments is None else arguments, ensure_ascii=False))
        return {key: value for key, value in output.items() if value is not None}

    def text(self, tool: str, arguments: Any = None) -> str:
        """Its content, or its summary where it has no content."""
        output = self.call(tool, arguments)
        text: str = output.get("content", output["summary"])
        return text

    def ingress(self, name: str, kind: str, payload: Any = None, *, source: str = "test", id: str = "event-1") -> dict[str, Any]:
        """What an event gives: `accepted`, `data` and perhaps `output_commands`."""
        created = "2026-01-01T00:00:00.000Z"
        event = {"kind": kind, "source": source, "ingress_name": name, "payload": payload, "created_at": created, "attempt": 1}
        return self._call_json("handle-ingress", name, json.dumps({**event, "correlation_id": id}, ensure_ascii=False))

    def status(self) -> dict[str, Any]:
        return self._call_json("status")

    def _call_json(self, export: str, *texts: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self._call(export, *texts))
        return document

    def _find_function(self, api: str, name: str) -> HostFunction:
        given = self._host.get(f"{api}.{name}")

        def refuse(*_: Any) -> str:
            raise PermissionError(f"this test gives no host function {api}.{name}")

        return given or refuse

    def _open(self) -> None:
        raise NotImplementedError

    def _call(self, export: str, *texts: str) -> str:
        raise NotImplementedError


class YoiSource(_Plugin):
    """An extension in Python as its component will run it, without one: quick, and what it raises can be debugged."""

    def _open(self) -> None:
        from serai.sdk.adapters.yoi import exports, found_in

        file = self.folder / "extension.py"
        spec = spec_from_file_location("extension", file)
        if spec is None or spec.loader is None or not file.exists():
            raise BadExtension("there is no extension.py", who=str(self.folder), hint="a component is tested with YoiHost")
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        asked = {permission.api for permission in self.manifest.permissions}
        functions: dict[str, Any] = {
            api: SimpleNamespace(**{name.replace("-", "_"): self._find_function(api, name) for name in names})
            for api, names in worlds.HOST.items()
            if api in asked
        }
        self._exports = exports(found_in(module), functions)

    def _call(self, export: str, *texts: str) -> str:
        answer: str = getattr(self._exports, export.replace("-", "_"))(*texts)
        return answer


class YoiHost(_Plugin):
    """The component that `serai guest build` made."""

    def _open(self) -> None:
        try:
            from wasmtime import Engine, Store
            from wasmtime.component import Component, Linker
        except ImportError:
            raise SpawnFailed("wasmtime is not installed", hint="pip install 'serai[wasm]'") from None
        content = self._component.read_bytes()
        if not content.startswith(_COMPONENT):  # a text would be taken for the text of a component
            raise BadExtension("it is not built yet", who=str(self._component), hint="`serai guest build` does that")
        engine = Engine()
        component = Component(engine, content)
        linker = Linker(engine)
        with linker.root() as root:
            for api, names in worlds.HOST.items():
                with root.add_instance(worlds.format_import(api)) as instance:
                    for name in names:
                        instance.add_func(name, _wrap_function(self._find_function(api, name)))
        self._store = Store(engine)
        self._instance = linker.instantiate(self._store, component)

    def _call(self, export: str, *texts: str) -> str:
        function = self._instance.get_func(self._store, export)
        if function is None:
            raise BadExtension(f"it does not export {export}", who=str(self._component))
        self._trapped = True
        answer: str = function(self._store, *texts)
        function.post_return(self._store)
        self._trapped = False
        return answer


def _wrap_function(function: HostFunction) -> Callable[..., str]:
    """Without the store, and with an error that arrives as it is: only wasmtime's own do."""
    from wasmtime import WasmtimeError

    def call(_store: object, *arguments: Any) -> str:
        try:
            return function(*arguments)
        except Exception as error:
            raise WasmtimeError(str(error)) from None

    return call
