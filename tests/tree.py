"""The size and the names of the tree: `make tree` prints them, `tests/tree.toml` has the ceilings, `test_tree.py` compares.

Lines are counted as `wc -l` counts them. A commit that raises a ceiling does nothing else, and says why.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
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
        "class_names_used_twice": len(classes_used_twice()),
        "helpers_written_twice": len(helpers_written_twice()),
    }


def gerunds() -> list[str]:
    """Modules that are named by what happens in them."""
    names = [module.stem.rpartition("_")[2] for module in modules()]
    return [str(module) for module, name in zip(modules(), names, strict=True) if name.endswith("ing") and name not in NOUNS]


@cache
def _trees() -> dict[Path, ast.Module]:
    return {module: ast.parse(text) for module, text in modules().items()}


def classes_used_twice() -> dict[str, list[str]]:
    """Names of public classes that several modules define. Dialects may share a name for the same idea."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in _trees().items():
        for statement in tree.body if module.parts[0] != "compat" else ():
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                found[statement.name].append(str(module))
    return {name: where for name, where in sorted(found.items()) if len({_home(place) for place in where}) > 1}


def _home(module: str) -> str:
    return "dialects" if module.startswith("dialects/") else module


def helpers_written_twice() -> dict[str, list[str]]:
    """Functions whose body stands in several modules, to the letter but for the docstring."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in _trees().items():
        lines = modules()[module].splitlines()
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef):
                body = statement.body[1:] if ast.get_docstring(statement) else statement.body
                text = "\n".join(lines[body[0].lineno - 1 : statement.end_lineno]) if body else ""
                if len(text) > 80:  # shorter ones are not worth an import
                    found[text].append(f"{module}:{statement.name}")
    return {where[0]: where for where in found.values() if len(where) > 1}


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
    for name, where in classes_used_twice().items():
        print(f"  {name}: {', '.join(where)}")
    print("\nhelpers written twice")
    for where in helpers_written_twice().values():
        print(f"  {', '.join(where)}")
    print(
        "\nseconds on the machine that wrote the ceilings:", ", ".join(f"{name} {count}" for name, count in most["seconds"].items())
    )


if __name__ == "__main__":
    main()
