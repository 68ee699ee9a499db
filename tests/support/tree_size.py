"""The size and the names of the tree: `make tree` prints them, `tests/tree.toml` has the ceilings, `tests/tree/test_size.py`
compares.

Lines are counted as `wc -l` counts them. A commit that raises a ceiling does nothing else, and says why.
"""

from __future__ import annotations

import ast
import signal
import tomllib
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "serai"
# Nouns of the trade that end like a gerund.
NOUNS = frozenset({"framing", "logging", "mapping", "recording", "testing", "authoring"})


@cache
def ceilings() -> dict[str, dict[str, int]]:
    """The tables of `tree.toml`."""
    with open(ROOT / "tests" / "tree.toml", "rb") as file:
        return tomllib.load(file)


@cache
def modules() -> dict[Path, str]:
    """The text of every source module, by its path below `src/serai`."""
    return {path.relative_to(SOURCE): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}


def package_of(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def lines_by_package() -> dict[str, int]:
    """Lines of each package; a module beside the packages counts as one."""
    lines: Counter[str] = Counter()
    for module, text in modules().items():
        lines[package_of(module)] += text.count("\n")
    return dict(lines)


@cache
def counts() -> dict[str, int]:
    """What the table `tree` of the ceilings bounds."""
    tests = sum(path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py"))
    by_package = lines_by_package()
    return {
        "lines": sum(by_package.values()),
        "lines_without_compat": sum(count for package, count in by_package.items() if package != "compat"),
        "modules": len(modules()),
        "test_lines": tests,
        "longest_module": max(text.count("\n") for text in modules().values()),
        "gerund_modules": len(gerunds()),
        "class_names_used_twice": len(names()[0]),
        "helpers_written_twice": len(names()[1]),
    }


def gerunds() -> list[str]:
    """Modules that are named by what happens in them."""
    words = {module: module.stem.rpartition("_")[2] for module in modules()}
    return [str(module) for module, word in words.items() if word.endswith("ing") and word not in NOUNS]


@cache
def names() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Public classes that several modules define, and functions whose body stands in several modules: name and modules.

    The syntax trees are not kept: two million objects would make every later collection of garbage take a second.
    """
    classes: dict[str, list[str]] = defaultdict(list)
    bodies: dict[str, list[str]] = defaultdict(list)
    for module, text in modules().items():
        lines = text.splitlines()
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.ClassDef) and module.parts[0] != "compat" and not statement.name.startswith("_"):
                classes[statement.name].append(str(module))
            elif isinstance(statement, ast.FunctionDef):
                body = statement.body[1:] if ast.get_docstring(statement) else statement.body
                if (
                    body and len(code := "\n".join(lines[body[0].lineno - 1 : statement.end_lineno])) > 80
                ):  # else not worth an import
                    bodies[code].append(f"{module}:{statement.name}")
    return (
        {name: where for name, where in sorted(classes.items()) if len({_home(place) for place in where}) > 1},
        {where[0]: where for where in bodies.values() if len(where) > 1},
    )


def _home(module: str) -> str:
    """Dialects may share a name for the same idea."""
    return "dialects" if module.startswith("dialects/") else module


def main() -> None:
    most = ceilings()
    print(f"{'':28}{'now':>8}{'at most':>9}")
    for name, count in counts().items():
        print(f"{name.replace('_', ' '):28}{count:8}{most['tree'][name]:9}")
    print("\nlines by package")
    for package, count in sorted(lines_by_package().items()):
        print(f"  {package:26}{count:8}{most['lines'][package]:9}")
    print("\nmodules named by a gerund:", *gerunds() or ["none"])
    print("\nclass names used twice")
    classes, helpers = names()
    for name, where in classes.items():
        print(f"  {name}: {', '.join(where)}")
    print("\nhelpers written twice", *(f"  {', '.join(where)}" for where in helpers.values()), sep="\n")
    seconds = ", ".join(f"{name} {count}" for name, count in most["seconds"].items())
    print("\nseconds on the machine that wrote the ceilings:", seconds)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `make tree | head`
    main()
