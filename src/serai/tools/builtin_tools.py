"""The built-in tools as one `ToolBox`: each call is checked, judged by where it leads, and always answered."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Mapping, Sequence

from serai.errors import BadSettings, SeraiError
from serai.limits import ToolLimits
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec
from serai.tools import file_tools, process_tools
from serai.tools.tool import BuiltInTool, FileThreads, ToolContext, ToolJob
from serai.tools.workspace import FileSnapshots, Outside, SeenFiles, ToolFailure, Workspace, to_text
from serai.wire.process import Spawner

log = logging.getLogger("serai.tools")

_TOOLS = (
    process_tools.make_bash_tool,
    file_tools.make_edit_tool,
    process_tools.make_find_tool,
    process_tools.make_grep_tool,
    file_tools.make_read_tool,
    file_tools.make_write_tool,
)


def deny_outside(_: ToolCall, __: str) -> bool:
    return False


class BuiltInTools:
    """read, write, edit, bash, grep and find in one working directory, for one session.

    Paths lead into `cwd` and the folders of `also`; further only when `outside` says that this very call was allowed to lead to
    this real path. `grants` are credentials of `environ` that commands may see. `only` names the tools to offer. Without `undo` no
    copies are kept.
    """

    def __init__(
        self,
        cwd: str | os.PathLike[str],
        *,
        spawner: Spawner,
        also: Sequence[str | os.PathLike[str]] = (),
        outside: Outside = deny_outside,
        undo: FileSnapshots | None = None,
        limits: ToolLimits | None = None,
        environ: Mapping[str, str] = os.environ,
        grants: Sequence[str] = (),
        only: Collection[str] | None = None,
    ) -> None:
        limits = limits or ToolLimits()
        self._context = ToolContext(
            workspace=Workspace(cwd, also, outside),
            spawner=spawner,
            limits=limits,
            environ=process_tools.build_environment(environ, grants),
            undo=undo,
            seen=SeenFiles(),
            threads=FileThreads(limits.interrupt),
        )
        tools = [make(limits) for make in _TOOLS]
        names = [tool.spec.name for tool in tools]
        if unknown := sorted(set(names if only is None else only) - set(names)):
            raise BadSettings(f"there is no built-in tool {unknown[0]!r}", hint=f"there are {', '.join(names)}")
        self._tools: dict[str, BuiltInTool] = {tool.spec.name: tool for tool in tools if only is None or tool.spec.name in only}

    @property
    def cwd(self) -> str:
        """The working directory, every link followed."""
        return self._context.workspace.cwd

    def list(self) -> Sequence[ToolSpec]:
        """The `ToolBox` protocol."""
        return [tool.spec for tool in self._tools.values()]

    def leads_outside(self, call: ToolCall) -> tuple[str, ...]:
        """The real paths that this call leads to outside of `cwd` and `also`: tell them to whoever allows it, before they do."""
        try:
            tool = self._tools.get(call.name)
            said = tool.parse_arguments(call.arguments).get_path() if tool else ""
            return self._context.workspace.find_outside(said) if said else ()
        except ToolFailure:  # it will be refused
            return ()

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        """The `ToolBox` protocol. Whoever cancels it ends what it runs.

        A change of a file that has begun is made, and waited for; one that has not never is.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            return ToolResult.error(
                f"unknown tool: {to_text(call.name)}", code="UNKNOWN_TOOL", hint=f"there are {', '.join(self._tools)}"
            )
        seconds = self._context.limits.tool
        try:
            async with asyncio.timeout(seconds):
                return await tool.run(tool.parse_arguments(call.arguments), ToolJob(self._context, call, tell))
        except ToolFailure as failed:
            return failed.to_result()
        except TimeoutError:
            hint = "look at what it has done before you try again"
            return ToolResult.error(f"{call.name} did not end within {seconds} s", code="TIMEOUT", hint=hint)
        except SeraiError as error:  # such as a spawner that was closed
            return ToolResult.error(str(error), code="INTERNAL", hint=error.hint)
        except Exception as error:
            log.exception("the built-in tool %s failed", call.name)
            return ToolResult.error(
                f"{call.name} failed: {type(error).__name__}", code="INTERNAL", hint="this is a defect of Serai"
            )
