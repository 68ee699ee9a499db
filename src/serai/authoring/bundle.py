"""What `serai guest bundle` makes: one file of an extension, its modules and the SDK, that a bare `python3 -S -E` runs.

It is a zip archive with a `__main__.py` (PEP 441). Nothing in it is compressed: it starts sooner, and its bytes do not depend on a
zlib. Beside each module lies its bytecode for the Python that bundled; another Python skips that and reads the source.

The imports of a program are found without running it: which modules beside it go into the bundle, and what a bundle cannot carry.
"""

from __future__ import annotations

import ast
import io
import marshal
import os
import re
import shlex
import sys
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import MAGIC_NUMBER, source_hash
from pathlib import Path
from typing import NamedTuple

import serai
from serai import atomic_file, errors
from serai.errors import BadExtension, BadManifest, NotWritten
from serai.limits import MIB

# Of Serai a bundle has these, whose imports are the standard library alone.
BUNDLED_MODULES = (
    "serai.dialects.hookproto",
    "serai.dialects.yoi.peer_side",
    "serai.errors",
    "serai.lazy",
    "serai.sdk",
    "serai.version",
)
_STANDARD = sys.stdlib_module_names | {"__main__"}
# What an import raises that fails, and what is above that.
_CATCHES = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


class ImportScan(NamedTuple):
    modules: list[str]  # of the program's folder, by their path from there
    warnings: list[str]


class _Import(NamedTuple):
    module: str
    names: tuple[str, ...]  # of `from module import names`
    line: int
    optional: bool  # the program may do without, or never runs it


def scan_imports(program: Path) -> ImportScan:
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
        visitor = _ImportVisitor(_find_package(file))
        _visit(visitor, root / file)
        warnings += [
            f"{file}:{line}: __file__ will lie inside the bundle; {_format_advice(file, program)}" for line in visitor.files
        ]
        for found in visitor.imports:
            modules = _find_modules(root, found)
            waiting += modules or ()
            for name in _find_missing(found) if modules is None else ():
                where = f"{name} ({file}:{found.line})"
                if found.optional:
                    warnings.append(f"{where} is not in the bundle: the program has to do without it there")
                else:
                    missing.append(where)
    if missing:
        raise BadExtension(f"a bundle cannot carry {', '.join(missing)}", who=str(program), hint=_format_hint(missing))
    return ImportScan(list(seen), warnings)


def _format_advice(file: str, program: Path) -> str:
    """How to read data, bundled or not: by the name of a module, which the program itself has only in a bundle."""
    if file != program.name:
        return 'read data with pkgutil.get_data(__name__, "data.txt")'
    return 'read data with pkgutil.get_data("helper", "data.txt"), where helper.py is a module beside the program'


def _format_hint(missing: list[str]) -> str:
    ours = [name for name in missing if name.startswith("serai.")]
    hints = ["of Serai a bundle has serai.sdk and its errors, nothing else"] if ours else []
    if len(ours) < len(missing):
        hints.append(
            "put its source beside the program, import it in a `try` with `except ImportError`, or do not bundle this extension"
        )
    return "\n".join(hints)


def _visit(visitor: _ImportVisitor, file: Path) -> None:
    try:
        visitor.visit(_parse(file))
    except RecursionError:
        hint = "split its longest expression, such as a sum of hundreds of terms"
        raise BadExtension("its code is nested too deep to look for imports in it", who=str(file), hint=hint) from None


def _parse(file: Path) -> ast.Module:
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


def _find_package(file: str) -> str:
    """The package that a module's relative imports start from; empty at the top, where there are none."""
    return ".".join(Path(file).parts[:-1])


class _ImportVisitor(ast.NodeVisitor):
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


def _find_modules(root: Path, found: _Import) -> list[str] | None:
    """The files beside the program that an import runs; None if it is not there at all."""
    files = list(dict.fromkeys(file for name in _list_candidates(found) for file in _iter_module_files(root, name.split("."))))
    top = root / found.module.partition(".")[0]
    return files if files or _is_folder(top, root) else None


def _list_candidates(found: _Import) -> list[str]:
    """A module, and what may be modules in it."""
    return [found.module, *(f"{found.module}.{name}" for name in found.names)]


def _iter_module_files(root: Path, parts: list[str]) -> Iterator[str]:
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
    return path.is_file() and _is_inside(path, root)


def _is_folder(path: Path, root: Path) -> bool:
    """A package without `__init__.py`: a folder with modules in it."""
    return path.is_dir() and any(_is_file(module, root) for module in path.rglob("*.py"))


def _find_missing(found: _Import) -> list[str]:
    """What of an import is neither the standard library's nor the SDK's."""
    top = found.module.partition(".")[0]
    if top != "serai":
        return [] if top in _STANDARD else [top]
    if found.module != "serai" or not found.names:
        return [] if found.module == "serai" or _is_carried(found.module) else [found.module]
    return [f"serai.{name}" for name in found.names if not (_is_carried(f"serai.{name}") or _is_exported(name))]


def _is_carried(module: str) -> bool:
    return any(module == carried or module.startswith(f"{carried}.") for carried in BUNDLED_MODULES)


def _is_exported(name: str) -> bool:
    """What `serai` itself shows of the modules that a bundle has."""
    return name == "__version__" or name in errors.__all__


def list_carried_files() -> list[Path]:
    """The modules of Serai that a bundle has."""
    library = Path(serai.__file__).parent
    files = [
        library / "__init__.py",
        library / "__init__.pyi",
        library / "dialects" / "__init__.py",
        library / "dialects" / "yoi" / "__init__.py",
    ]
    for name in BUNDLED_MODULES:
        module = library.joinpath(*name.split(".")[1:])
        files += (
            sorted(file for file in module.rglob("*") if file.suffix in (".py", ".pyi"))
            if (module / "__init__.py").is_file()
            else [module.with_suffix(".py")]
        )
    return files


_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = "__main__.py"
_MOST = 64 * MIB  # a data folder, or somebody's home: nobody meant to send that
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip archive can tell
_UNCHECKED = (0b01).to_bytes(4, "little")  # of a .pyc: known by its source's hash, which nobody is to check (PEP 552)
# Of a guest's folder: made by tools, for the author alone, or lying beside the bundle rather than in it.
_SKIPPED_FOLDERS = re.compile(r"\..*|__pycache__|node_modules|venv|tests?|.*\.egg-info", re.IGNORECASE)
_SKIPPED_FILES = re.compile(
    r"\..*|.*\.py[co]|.*\.pyz|.*~|test_.*\.py|.*_test\.py|conftest\.py|extension\.json|manifest\.yaml|guest\.toml"
)
_FLAGS = re.compile(r"-[bBdEIOPqsSuv]+")  # options of Python without a value, but those that make it run something else
_PYTHON = re.compile(r"python[\d.]*")  # as in `env python3 -u weather.py`


@dataclass(frozen=True, slots=True)
class BundlePlan:
    """What is to be bundled: the program, the folder that its imports start from, and the files of that folder."""

    name: str  # as a file may be called
    program: Path
    root: Path
    files: tuple[str, ...]  # by their path from the root
    about: dict[str, object]  # of the manifest: name, version, language, description
    options: tuple[str, ...] = ()  # of the interpreter, before the program
    args: tuple[str, ...] = ()  # behind it
    dialect: str = "zot"  # of the manifest
    warnings: list[str] = field(default_factory=list)

    def build_manifest(self, file: str) -> dict[str, object]:
        """The manifest that starts the bundle in this file."""
        if self.dialect == "piglet":  # which gives an interpreter no options (spec piglet 1.4)
            return {**self.about, "runtime": "python", "entry": file}
        return {**self.about, "exec": "python3", "args": ["-S", "-E", *self.options, file, *self.args]}


class Bundle(NamedTuple):
    content: bytes
    names: list[str]


# -- what goes in -----------------------------------------------------------------------------------------------------------------


def plan_bundle(path: Path) -> BundlePlan:
    """Look at a guest's folder, or at a program; `BadExtension` says what cannot be bundled."""
    if path.is_dir() or path.name in ("extension.json", "manifest.yaml"):
        planned = _plan_folder(path if path.is_dir() else path.parent)
    else:
        planned = _plan_program(path)
    for module in planned.files:  # as without a bundle: the folder comes first
        if (name := module.removesuffix("/__init__.py").removesuffix(".py")) in sys.stdlib_module_names:
            planned.warnings.append(f"{module} hides the standard library's {name}, also from the SDK: rename it if that is needed")
    return planned


def _plan_program(path: Path) -> BundlePlan:
    if path.suffix != ".py":
        hint = "name the folder with its manifest, or its program, a .py file"
        raise BadExtension("it is neither the folder of an extension nor a Python program", who=str(path), hint=hint)
    seen = scan_imports(path)
    name = _to_file_name(path.stem)
    return BundlePlan(name, path, path.parent, tuple(sorted(seen.modules)), {"name": path.stem}, warnings=seen.warnings)


def _plan_folder(path: Path) -> BundlePlan:
    from serai.host.guest_manifest import inspect_folder, read_manifest
    from serai.host.guest_settings import PersonSettings

    folder = inspect_folder(Path(os.path.abspath(path)))
    if folder is None:
        raise BadManifest(
            "there is no extension.json or manifest.yaml", who=str(path), hint="name the folder that has it, or the program itself"
        )
    manifest = read_manifest(folder, "ad hoc", PersonSettings())
    program, before, args = _find_program(manifest.folder, manifest.argv)
    options, lost = _split_options(before)
    seen = scan_imports(program)
    skipped: list[str] = []
    files = {*iter_own_files(program.parent, skipped), *seen.modules}
    members = ("name", "version", "description") if manifest.dialect == "piglet" else ("name", "version", "language", "description")
    about = {key: getattr(manifest, key) for key in members if getattr(manifest, key)}
    remarks = [*seen.warnings, *skipped]
    if lost:
        remarks.append(f"what stands before the program is not in the new manifest: {shlex.join(lost)}; add what the bundle needs")
    if program.parent != manifest.folder:
        remarks.append(f"only what is in {program.parent} is bundled: the program's folder, where its imports start")
    if (manifest.folder / "guest.toml").is_file():
        remarks.append(
            "guest.toml is not in it: put a copy beside the bundle" + (", else it is no guard" * manifest.settings.guard)
        )
    name, root = _to_file_name(manifest.name), program.parent
    return BundlePlan(name, program, root, tuple(sorted(files)), about, tuple(options), args, manifest.dialect, remarks)


def _find_program(folder: Path, argv: tuple[str, ...]) -> tuple[Path, tuple[str, ...], tuple[str, ...]]:
    """The first word of the command line that is a Python program, what stands before it, and the arguments behind it."""
    for place, word in enumerate(argv):
        if word.endswith(".py"):
            program = Path(os.path.normpath(folder / word))
            if not program.is_relative_to(folder) or not _is_inside(program, folder):
                raise BadExtension(f"its program {word} lies outside of its folder", who=str(folder), hint="move it there")
            return program, argv[:place], argv[place + 1 :]
    hint = "its `exec`, one of its `args` or its `entry` has to be a .py file; what is not Python cannot be bundled"
    raise BadExtension(f"its manifest starts no Python program: {' '.join(argv)}", who=str(folder), hint=hint)


def _split_options(before: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """What a bundle can be started with too of the words before a program, and what else there is but the interpreter's name."""
    kept, lost = [], []
    for word in before[1:]:
        if _FLAGS.fullmatch(word):
            kept.append(re.sub("[SE]", "", word))  # a bundle has these anyway
        elif not _PYTHON.fullmatch(os.path.basename(word)):
            lost.append(word)
    return [word for word in kept if word != "-"], lost


def iter_own_files(root: Path, skipped: list[str]) -> Iterator[str]:
    """The files of a folder that belong to what it does."""
    for here, folders, files in os.walk(root):
        at = Path(here)
        links = [name for name in folders if (at / name).is_symlink()]
        skipped += [f"{at / name} is not in it: a link to a folder" for name in links]
        wanted = [name for name in folders if name not in links and not _SKIPPED_FOLDERS.fullmatch(name)]
        folders[:] = [name for name in wanted if not (at / name / "pyvenv.cfg").exists()]
        for name in files:
            file = at / name
            if _SKIPPED_FILES.fullmatch(name):
                continue
            if not _is_inside(file, root):
                skipped.append(f"{file} is not in it: a link that leads out of the folder")
            elif file.is_file():
                yield file.relative_to(root).as_posix()


def _is_inside(file: Path, root: Path) -> bool:
    return os.path.realpath(file).startswith(f"{os.path.realpath(root).rstrip('/')}/")


def _to_file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip(".-") or "bundle"


# -- the archive ------------------------------------------------------------------------------------------------------------------


def pack_bundle(plan: BundlePlan) -> Bundle:
    """The bytes of the bundle: the same for the same files, whoever makes it, wherever and when."""
    sources = _read_sources(plan)
    level = min("".join(plan.options).count("O"), 2)  # bytecode is used as it is, whatever -O says then
    entries = dict(sources)
    for name, source in sources.items():
        if name.endswith(".py") and (bytecode := _compile_source(source, f"{plan.name}.pyz/{name}", level)):
            entries[f"{name}c"] = bytecode
    content = io.BytesIO()
    content.write(_SHEBANG)
    with zipfile.ZipFile(content, "w") as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, _LONG_AGO)
            info.create_system, info.external_attr = 3, 0o644 << 16  # Unix, whatever this machine is
            archive.writestr(info, entries[name])
    return Bundle(content.getvalue(), sorted(entries))


def _read_sources(plan: BundlePlan) -> dict[str, bytes]:
    """All files but bytecode, by their name in the archive."""
    own = plan.program.relative_to(plan.root).as_posix()
    paths = {name: plan.root / name for name in (own, *plan.files)}
    for name in paths:
        _check_name(name, own, plan)
    paths[_MAIN] = plan.program
    library = Path(serai.__file__).parent
    paths |= {f"serai/{file.relative_to(library).as_posix()}": file for file in list_carried_files()}
    sources: dict[str, bytes] = {}
    room = _MOST
    for name, path in paths.items():
        try:
            room -= path.stat().st_size
            if room < 0:
                hint = "move out of it what the extension does not need"
                raise BadExtension(f"there are more than {_MOST // MIB} MiB in it", who=str(plan.root), hint=hint)
            sources[name] = path.read_bytes()
        except OSError as error:
            raise BadExtension(f"cannot be read: {error.strerror}", who=str(path), hint="make it readable for you") from None
    return sources


def _check_name(name: str, own: str, plan: BundlePlan) -> None:
    who = str(plan.root / name)
    if name == _MAIN != own:
        raise BadExtension("the bundle's own program has that name", who=who, hint="give it another name")
    if name == "serai.py" or name.startswith("serai/"):
        raise BadExtension("it would hide the SDK, which has that name", who=who, hint="give it another name")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise BadExtension("its name is no text", who=ascii(who), hint="give it another name") from None


def _compile_source(source: bytes, filename: str, level: int) -> bytes:
    """A module compiled; nothing if that cannot be, as with a template that only looks like a module."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, filename, "exec", dont_inherit=True, optimize=level)
        # The second version has no references: whether a later one writes one depends on who else holds the object. What it
        # does not know, such as a slice among the constants (Python 3.14), is a ValueError.
        return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(code, 2)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return b""


# -- the file ---------------------------------------------------------------------------------------------------------------------


def check_target(output: Path, plan: BundlePlan, *, force: bool) -> None:
    """A bundle may be replaced; what is none only if somebody insists, and a source of the extension never."""
    if not os.path.lexists(output):
        return
    hint = "choose another file with -o"
    if os.path.realpath(output) in {os.path.realpath(plan.root / name) for name in plan.files}:
        raise NotWritten("it is a part of the extension", who=str(output), hint=hint)
    if not force and not _is_bundle(output):
        raise NotWritten("it is there, and no bundle", who=str(output), hint=f"{hint}, or replace it with --force")


def _is_bundle(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return _MAIN in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def write_bundle(content: bytes, output: Path) -> None:
    """The file is there whole, executable, or not at all."""
    try:
        atomic_file.write_atomically(output, content, mode=0o755)
    except OSError as error:
        raise NotWritten(f"cannot be written: {error.strerror}", who=str(output)) from None
