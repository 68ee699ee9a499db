"""Every citation in the tree resolves: spec sections, corrections, design rules, seeds, pages, and links to an anchor.

A citation of something that a clone does not contain, such as an issue or a note, is reported as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "bench", "examples", "docs")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
SUFFIXES = (".c", ".go", ".h", ".js", ".md", ".mjs", ".py", ".sh", ".toml", ".ts", ".txt", ".wat", ".wit", ".yaml")

# Lists such as "4.4, 5.1", "4.4 and 5.1", "1.5 to 1.8", "5.2 F3, F19-F22", "9 FIX-3", "4.4, piglet 5.3". Of a range the ends count.
_NAME = r"(?:zot|hooks|agents|yoi|piglet)"
_ITEM = r"(?:FIX-\d+|[A-Z]\d+|\d+(?:\.\d+)*)\b"
_LIST = rf"{_ITEM}(?:(?:,? (?:and |to )?(?:spec )?(?:{_NAME} )?| - |-){_ITEM})*"
_NUMBERS = r"\d+(?:(?:, (?:and )?| and | to | or |-)\d+)*"

# The README of a dialect cites the sections of its spec by their numbers alone.
_READMES = {"claude": "agents", "hookproto": "hooks", "piglet": "piglet", "yoi": "yoi", "zot": "zot"}


class Kind(NamedTuple):
    """How one kind of citation looks, and where it leads: to pages, with or without an anchor, or nowhere (a reason).

    A text without the `word` has none of them.
    """

    word: str
    pattern: str
    targets: Callable[[re.Match[str], str], list[str]]


# A blank stands for any gap between two words, also between two lines of a comment.
_GAP = r"(?: +|\n[ \t]*(?:#:?|//|\*)?[ \t]*)"

KINDS = {
    "spec": Kind("pec", rf"\b[Ss]pecs? ({_NAME} {_LIST})", lambda found, _: _list_sections(found[1])),
    "section": Kind("sections", rf"\(({_LIST})(?: \[|: |; |, ours|, seed|\))", lambda found, file: _list_numbered(found[1], file)),
    "correction": Kind("FIX-", r"\bFIX-(\d+)\b", lambda found, _: [f"docs/specs/piglet.md#fix-{found[1]}"]),
    "design rule": Kind("esign", rf"\b[Dd]esign rules? ({_NUMBERS})", lambda found, _: _list_rules(found[1])),
    "seed": Kind("eed", r"\b[Ss]eeds? (\d{3})\b", lambda found, _: [f"docs/parity/{found[1]}-*.md"]),
    "page": Kind("docs/", r"(?<![\w./-])(docs/[\w./-]+\.md(?:#[\w-]+)?)", lambda found, file: _find_page(found[1], file)),
    "link": Kind("](", r"\]\(([\w./-]*)#([\w-]+)\)", lambda found, file: [_find_linked(file, found[1], found[2])]),
    "unnamed spec": Kind("", rf"\b[Ss]pec (?:{_ITEM}|[A-Z]\b)|\({_NAME} \d+\.\d+", lambda *_: ["no spec is named"]),
    "lesson": Kind("L", r"\b[Ll]essons? L\d+|\(L\d+\)", lambda *_: ["lessons are not in the repository"]),
    "design": Kind("DESIGN", r"\bDESIGN\b", lambda *_: ["the page is docs/design-rules.md or docs/architecture.md"]),
    "note": Kind("otes", r"\b[Nn]otes [a-z]+-[a-z]+ \d|\bnotes, section \d", lambda *_: ["notes are not in the repository"]),
    "issue": Kind("ssue", r"\b[Ii]ssues? #?\d", lambda *_: ["issues are not in the repository"]),
}


def _list_sections(cited: str) -> list[str]:
    targets: list[str] = []
    name = section = ""
    for word in re.findall(rf"{_NAME}(?=\s)|{_ITEM}", cited):
        if re.fullmatch(_NAME, word):
            name = word
            continue
        if word[0].isdigit():
            section = anchor = f"s{word.replace('.', '-')}"
        else:
            anchor = word.lower() if word.startswith("FIX-") else f"{section}-{word.lower()}"
        targets.append(f"docs/specs/{name}.md#{anchor}")
    return targets


def _list_numbered(cited: str, file: str) -> list[str]:
    readme = re.fullmatch(r"src/serai/dialects/(\w+)/README\.md", file)
    return _list_sections(f"{_READMES[readme[1]]} {cited}") if readme and readme[1] in _READMES else []


def _list_rules(cited: str) -> list[str]:
    return [f"docs/design-rules.md#rule-{number}" for number in re.findall(r"\d+", cited)]


def _find_page(page: str, file: str) -> list[str]:
    """Pages are linked in the documents; there a plain path may be an example."""
    return [] if file.startswith("docs/") else [page]


def _find_linked(file: str, page: str, anchor: str) -> str:
    return f"{os.path.normpath(os.path.join(os.path.dirname(file), page)) if page else file}#{anchor}"


def iter_files(root: Path) -> Iterator[str]:
    """The texts of the tree. This one is not among them: it names what must not be cited."""
    yield from (page for page in PAGES if (root / page).exists())
    for folder in FOLDERS:
        for at, folders, names in os.walk(root / folder):
            folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
            for path in sorted(os.path.relpath(os.path.join(at, name), root) for name in names if name.endswith(SUFFIXES)):
                if path != "tests/tree/test_citations.py":
                    yield path


def find_wrong(root: Path) -> dict[str, list[str]]:
    """What does not resolve, by kind: file, line, citation and target."""
    kinds = [(name, kind, re.compile(kind.pattern.replace(" ", _GAP))) for name, kind in KINDS.items()]
    found: dict[str, list[str]] = {name: [] for name in KINDS}
    for file in iter_files(root):
        text = (root / file).read_text()
        for name, kind, pattern in kinds:
            for citation in pattern.finditer(text) if kind.word in text else ():
                for target in kind.targets(citation, file):
                    if not resolves(root, target):
                        line = text.count("\n", 0, citation.start()) + 1
                        found[name].append(f"{file}:{line}: {' '.join(citation[0].split())}: {target}")
    return found


@cache
def resolves(root: Path, target: str) -> bool:
    page, _, anchor = target.partition("#")
    if anchor:
        return anchor in find_anchors(root / page)
    return " " not in page and any(root.glob(page))


@cache
def find_anchors(page: Path) -> frozenset[str]:
    """The explicit anchors of a page, and those of its headings."""
    if not page.is_file():
        return frozenset()
    text = page.read_text()
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]*>", "", heading).lower()).replace(" ", "-") for heading in headings}
    return frozenset(slugs | set(re.findall(r'<a id="([\w.-]+)"></a>', text)))


@cache
def find_wrong_here() -> dict[str, list[str]]:
    return find_wrong(ROOT)


@pytest.mark.parametrize("kind", KINDS)
def test_every_citation_resolves(kind: str) -> None:
    rows = find_wrong_here()[kind]
    assert not rows, "\n".join(rows)


# -- the check itself can fail


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with a spec, a design rule and a seed."""
    pages = {
        "specs/zot.md": '<a id="s4"></a>\n## 4. Calls\n<a id="s4-4"></a>\n### 4.4 Interceptors\n1. <a id="s4-21"></a>One',
        "specs/agents.md": '<a id="s5-2"></a>\n### 5.2 Scenarios\n<a id="s5-2-h1"></a><a id="s5-2-h3"></a>H1 to H3',
        "specs/piglet.md": '<a id="s9"></a>\n## 9. Corrections\n<a id="fix-3"></a>FIX-3',
        "design-rules.md": '<a id="rule-8"></a>\n## 8. A guest that is down\n## The path of a `call`',
        "parity/001-extproto.md": "",
    }
    for name, text in pages.items():
        page = tmp_path / "docs" / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)
    (tmp_path / "src").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "spec zot 4.4",
        "Spec zot 4.4.",
        "spec zot 4, 4.4 and 4.21; ours",
        "spec zot 4 to 4.4 has it",
        "# spec zot\n    # 4.4,\n    # 4.21",
        "spec agents 5.2 H1, H1-H3",
        "spec piglet 9 FIX-3",
        "spec zot 4.4, piglet 9",
        "FIX-3",
        "design rule 8",
        "seed 001",
        "docs/design-rules.md#the-path-of-a-call",
        "[a](../docs/design-rules.md#rule-8)",
        "an issue, a lesson, a note, spec.loader",
    ],
)
def test_a_citation_that_resolves_is_not_reported(tree: Path, text: str) -> None:
    (tree / "src" / "a.py").write_text(text)
    assert [row for rows in find_wrong(tree).values() for row in rows] == []


@pytest.mark.parametrize(
    ("kind", "text", "target"),
    [
        ("spec", "spec zot 4.5", "docs/specs/zot.md#s4-5"),
        ("spec", "spec zot 4.4 and 5.1", "docs/specs/zot.md#s5-1"),
        ("spec", "spec zot 4.4 to 4.6", "docs/specs/zot.md#s4-6"),
        ("spec", "spec zot 4.4, piglet 5.3", "docs/specs/piglet.md#s5-3"),
        ("spec", "spec agents 5.2 H2", "docs/specs/agents.md#s5-2-h2"),
        ("spec", "spec yoi 4.4", "docs/specs/yoi.md#s4-4"),
        ("correction", "FIX-4", "docs/specs/piglet.md#fix-4"),
        ("design rule", "design rules 8 and 17", "docs/design-rules.md#rule-17"),
        ("seed", "seed 009", "docs/parity/009-*.md"),
        ("page", "docs/policy.md", "docs/policy.md"),
        ("link", "[a](../docs/design-rules.md#rule-9)", "docs/design-rules.md#rule-9"),
        ("unnamed spec", "(spec 4.4)", "no spec is named"),
        ("unnamed spec", "(zot 4.4)", "no spec is named"),
        ("unnamed spec", "Spec P", "no spec is named"),
        ("lesson", "lesson L6", "lessons are not in the repository"),
        ("design", "DESIGN.md", "the page is docs/design-rules.md or docs/architecture.md"),
        ("note", "notes real-agents 11", "notes are not in the repository"),
        ("issue", "issue 9", "issues are not in the repository"),
    ],
)
def test_a_citation_that_leads_nowhere_is_reported(tree: Path, kind: str, text: str, target: str) -> None:
    (tree / "src" / "a.py").write_text(f"\n{text}\n")
    rows = find_wrong(tree)[kind]
    assert len(rows) == 1
    assert rows[0].startswith("src/a.py:2: ")
    assert rows[0].endswith(f": {target}")


def test_the_readme_of_a_dialect_cites_sections_by_their_numbers(tree: Path) -> None:
    readme = tree / "src" / "serai" / "dialects" / "zot" / "README.md"
    readme.parent.mkdir(parents=True)
    readme.write_text("Numbers below are sections. Waits (4.4), asks (4, 4.21) and stops (5.1).")
    assert find_wrong(tree)["section"] == ["src/serai/dialects/zot/README.md:1: (5.1): docs/specs/zot.md#s5-1"]
