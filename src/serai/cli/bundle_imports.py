"""What a program imports, seen without running it: which modules beside it go into a bundle, and what a bundle cannot carry."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import serai
from serai import errors
from serai.errors import BadExtension

__all__ = ["CARRIED", "Seen", "carried_files", "follow"]

# Of Serai a bundle has these, whose imports are the standard library alone.
CARRIED = ("serai.dialects.hookproto", "serai.dialects.yoi.peer_side", "serai.errors", "serai.lazy", "serai.sdk", "serai.version")
_STANDARD = sys.stdlib_module_names | {"__main__"}
# What an import raises that fails, and what is above that.
_CATCHES = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


class Seen(NamedTuple):
    modules: list[str]  # of the program's folder, by their path from there
    warnings: list[str]


class _Import(NamedTuple):
    module: str
    names: tuple[str, ...]  # of `from module import names`
    line: int
    optional: bool  # the program may do without, or never runs it


def follow(program: Path) -> Seen:
    """Follow the imports of a program through the modules beside it; `BadExtension` names all that a bundle cannot carry."""
    root = program.parent
    seen: dict[str, None] = {}
    missing: list[str] = []
    warnings: list[str] = []
    waiting = [program.name]
    while waiting:
        file = waiting.pop(0)
        if file in seen:
            continue
        seen[file] = None
        look = _Look(_package(file))
        _visit(look, root / file)
        warnings += [f"{file}:{line}: __file__ will lie inside the bundle; {_advice(file, program)}" for line in look.files]
        for found in look.imports:
            modules = _modules(root, found)
            waiting += modules or ()
            for name in _not_carried(found) if modules is None else ():
                where = f"{name} ({file}:{found.line})"
                if found.optional:
                    warnings.append(f"{where} is not in the bundle: the program has to do without it there")
                else:
                    missing.append(where)
    if missing:
        raise BadExtension(f"a bundle cannot carry {', '.join(missing)}", who=str(program), hint=_hint(missing))
    return Seen(list(seen), warnings)


def _advice(file: str, program: Path) -> str:
    """How to read data, bundled or not: by the name of a module, which the program itself has only in a bundle."""
    if file != program.name:
        return 'read data with pkgutil.get_data(__name__, "data.txt")'
    return 'read data with pkgutil.get_data("helper", "data.txt"), where helper.py is a module beside the program'


def _hint(missing: list[str]) -> str:
    ours = [name for name in missing if name.startswith("serai.")]
    hints = ["of Serai a bundle has serai.sdk and its errors, nothing else"] if ours else []
    if len(ours) < len(missing):
        hints.append(
            "put its source beside the program, import it in a `try` with `except ImportError`, or do not bundle this extension"
        )
    return "\n".join(hints)


def _visit(look: _Look, file: Path) -> None:
    try:
        look.visit(_parsed(file))
    except RecursionError:
        hint = "split its longest expression, such as a sum of hundreds of terms"
        raise BadExtension("its code is nested too deep to look for imports in it", who=str(file), hint=hint) from None


def _parsed(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes(), filename=file.name)
    except OSError as error:
        raise BadExtension(
            f"cannot be read: {error.strerror}", who=str(file), hint="correct its name, or make it readable"
        ) from None
    except SyntaxError as error:
        raise BadExtension(f"it is no Python: line {error.lineno}: {error.msg}", who=str(file), hint="correct it") from None
    except (ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deep
        raise BadExtension(f"it is no Python: {str(error) or 'nested too deep'}", who=str(file), hint="correct it") from None


def _package(file: str) -> str:
    """The package that a module's relative imports start from; empty at the top, where there are none."""
    return ".".join(Path(file).parts[:-1])


class _Look(ast.NodeVisitor):
    """The imports in a module, and the lines that use `__file__`."""

    def __init__(self, package: str) -> None:
        self.imports: list[_Import] = []
        self.files: list[int] = []
        self._package = package
        self._optional = False
        self._serai = False  # whether that name is ours here

    def visit_Import(self, node: ast.Import) -> None:
        self._serai |= any(alias.name.partition(".")[0] == "serai" and not alias.asname for alias in node.names)
        self.imports += [_Import(alias.name, (), node.lineno, self._optional) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self._package.split(".") if self._package else []
        if node.level > len(above):  # fails wherever it runs
            return
        parts = above[: len(above) - node.level + 1] if node.level else []
        module = ".".join([*parts, *([node.module] if node.module else [])])
        self.imports.append(_Import(module, tuple(alias.name for alias in node.names), node.lineno, self._optional))

    def visit_Try(self, node: ast.Try | ast.TryStar) -> None:
        self._visit(node.body, optional=any(map(_catches, node.handlers)))
        for handler in node.handlers:
            self._visit([handler], optional=_catches(handler))
        self._visit([*node.orelse, *node.finalbody])

    visit_TryStar = visit_Try  # noqa: N815  (ast's names)

    def visit_If(self, node: ast.If) -> None:
        test = node.test
        checking = "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))
        self.visit(test)
        self._visit(node.body, optional=checking)
        self._visit(node.orelse)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self._serai and isinstance(node.value, ast.Name) and node.value.id == "serai":  # `import serai`, then `serai.Host`
            self.imports.append(_Import("serai", (node.attr,), node.lineno, self._optional))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id == "__file__":
            self.files.append(node.lineno)

    def _visit(self, nodes: Sequence[ast.AST], *, optional: bool = False) -> None:
        before, self._optional = self._optional, self._optional or optional
        for node in nodes:
            self.visit(node)
        self._optional = before


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether the program goes on there after an import that failed."""
    if handler.type is None:
        return True
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any({getattr(kind, "id", ""), getattr(kind, "attr", "")} & _CATCHES for kind in kinds)


def _modules(root: Path, found: _Import) -> list[str] | None:
    """The files beside the program that an import runs; None if it is not there at all."""
    files = list(dict.fromkeys(file for name in _dotted(found) for file in _on_the_way(root, name.split("."))))
    top = root / found.module.partition(".")[0]
    return files if files or _is_folder(top, root) else None


def _dotted(found: _Import) -> list[str]:
    """A module, and what may be modules in it."""
    return [found.module, *(f"{found.module}.{name}" for name in found.names)]


def _on_the_way(root: Path, parts: list[str]) -> Iterator[str]:
    at = root
    for part in parts:
        package, module = at / part / "__init__.py", at / f"{part}.py"
        if _is_file(package, root):
            yield package.relative_to(root).as_posix()
        elif _is_file(module, root):
            yield module.relative_to(root).as_posix()
            return
        elif not _is_folder(at / part, root):
            return
        at /= part


def _is_file(path: Path, root: Path) -> bool:
    return path.is_file() and os.path.realpath(path).startswith(f"{os.path.realpath(root).rstrip('/')}/")


def _is_folder(path: Path, root: Path) -> bool:
    """A package without `__init__.py`: a folder with modules in it."""
    return path.is_dir() and any(_is_file(module, root) for module in path.rglob("*.py"))


def _not_carried(found: _Import) -> list[str]:
    """What of an import is neither the standard library's nor the SDK's."""
    top = found.module.partition(".")[0]
    if top != "serai":
        return [] if top in _STANDARD else [top]
    if found.module != "serai" or not found.names:
        return [] if found.module == "serai" or _is_carried(found.module) else [found.module]
    return [f"serai.{name}" for name in found.names if not (_is_carried(f"serai.{name}") or _is_leaf(name))]


def _is_carried(module: str) -> bool:
    return any(module == carried or module.startswith(f"{carried}.") for carried in CARRIED)


def _is_leaf(name: str) -> bool:
    """What `serai` itself shows of the modules that a bundle has."""
    return name == "__version__" or name in errors.__all__


def carried_files() -> list[Path]:
    """The modules of Serai that a bundle has."""
    house = Path(serai.__file__).parent
    files = [
        house / "__init__.py",
        house / "__init__.pyi",
        house / "dialects" / "__init__.py",
        house / "dialects" / "yoi" / "__init__.py",
    ]
    for name in CARRIED:
        module = house.joinpath(*name.split(".")[1:])
        files += (
            sorted(file for file in module.rglob("*") if file.suffix in (".py", ".pyi"))
            if module.is_dir()
            else [module.with_suffix(".py")]
        )
    return files
