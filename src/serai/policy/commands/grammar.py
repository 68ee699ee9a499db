"""The reader with the whole grammar: tree-sitter's bash, if the extra `policy` is installed.

Its tree is taken as a proposal only: the grammar is large and not always right. It says where commands begin and end and where
substitutions stand; what the words are is read by our own scanner, and every byte between must be what a shell would skip there. A
tree that does not stand this test is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from serai.policy.commands import shell_text
from serai.policy.commands.shell_builtins import is_special_variable

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Blanks, newlines and lines that go on; a line that goes on in the middle of a word is none of these.
_GAP = re.compile(r"(?:[ \t\n]|(?<=[ \t\n])\\\n|\\\n(?=[ \t]))*")
_WORDS: Final = frozenset({"command", "declaration_command", "unset_command", "variable_assignment", "variable_assignments"})
_REDIRECTS: Final = frozenset({"file_redirect", "herestring_redirect"})
_SUBSTITUTIONS: Final = frozenset({"command_substitution", "process_substitution"})
_HOLES: Final = _SUBSTITUTIONS | {"expansion", "arithmetic_expansion", "array"}
_BLOCKS: Final = _SUBSTITUTIONS | {
    *("program", "list", "pipeline", "negated_command", "subshell", "compound_statement", "do_group", "while_statement"),
    *("if_statement", "elif_clause", "else_clause", "case_item", "case_statement", "for_statement", "function_definition"),
}
_TOKENS: Final = frozenset(
    {";", "&", "&&", "||", "|", "|&", "(", ")", "{", "}", "!", "\n", ";;", ";&", ";;&", "$(", "<(", ">(", "`", "if", "then", "elif"}
    | {"else", "fi", "for", "select", "in", "while", "until", "do", "done", "case", "esac", "function"}
)
# Words that stand in a block without being a command: what is looped over, what is compared, a function's name.
_NAMED: Final = frozenset(
    {"word", "string", "raw_string", "ansi_c_string", "concatenation", "number", "simple_expansion", "expansion", "variable_name"}
    | {"extglob_pattern", "command_substitution", "arithmetic_expansion", "translated_string"}
)
# Separators need nothing around them; a reserved word stands after and before one of these, or at an end of the text.
_APART: Final = ";&|()\n$<>`"
_BEFORE: Final = " \t\n;&|()`"
_AFTER: Final = " \t\n;&|()<>`"
_DELIMITER = re.compile(r"'([\w.-]+)'|\"([\w.-]+)\"|\\([\w.-]+)|([\w.-]+)", re.ASCII)
# Of these the parser takes long, or keeps too much in mind, when there are many.
_COSTLY = re.compile(r"<<|=~")
_MOST_COSTLY = 64
_MOST_NODES = 8 * shell_text.MOST_WORDS
# It is also slow to recover from errors, takes each sign for a chance to, and long words cost it their square. So much may stand
# in a text, and so much outside of quotes, comments and here-documents.
_SIGNS = re.compile(r"[()|&;<>`{}\[\]!]")
_RUNS = re.compile(r"[^ \t\n]+")
_IN_ALL, _BARE = (4096, 1 << 24, 1 << 16), (512, 1 << 22, shell_text.MOST_WORDS)
_QUIET = re.compile(
    r"""(?<![^\s;&|])\#[^\n]* | '[^']*' | \\. | (?P<kept>"(?:[^"\\]|\\.)*")
    | <<-?[ \t]*(?P<quote>['"]?)(?P<end>[\w.-]+)(?P=quote)(?P<line>[^\n]*)\n(?:[^\n]*\n)*?\t*(?P=end)(?=\n|\Z)""",
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_LONG_DELIMITER = re.compile(r"<<-?[ \t]*\S{100}")
_LIVE = re.compile(r"`|\$[({\[]")


@cache
def is_installed() -> bool:
    """Whether the extra is there."""
    return find_spec("tree_sitter") is not None and find_spec("tree_sitter_bash") is not None


@cache
def _load_parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse_with_grammar(text: str) -> shell_text.ParsedText:
    """Every command in a text for bash; `Unreadable` unless all of it is certain."""
    source = shell_text.as_byte_text(shell_text.check_text(text))
    if len(_COSTLY.findall(source)) > _MOST_COSTLY or _LONG_DELIMITER.search(source):
        raise shell_text.Unreadable("it has more here-documents or tests than are looked at")
    bare = _QUIET.sub(lambda found: found["kept"] or found["line"] or "", source)
    if _exceeds(source, _IN_ALL) or _exceeds(bare, _BARE):
        raise shell_text.TooComplex
    root = _load_parser().parse(source.encode("latin-1")).root_node
    if root.descendant_count > _MOST_NODES:
        raise shell_text.TooComplex
    if root.has_error:
        raise shell_text.Unreadable("it is no text that bash would take, or one that is not understood here")
    walk = _Walk(source, root)
    walk.run()
    return shell_text.ParsedText(
        tuple(command for _, command in sorted(walk.commands, key=lambda found: found[0])), tuple(walk.assigned), tuple(walk.hidden)
    )


def _exceeds(source: str, most: tuple[int, int, int]) -> bool:
    """Whether the signs, the squares of the words' lengths, or the words are too many for the parser."""
    lengths = [found.end() - found.start() for found in _RUNS.finditer(source)]
    found = len(_SIGNS.findall(source)), sum(length * length for length in lengths), len(lengths)
    return any(count > limit for count, limit in zip(found, most, strict=True))


def _iter_below(node: Node, *, until: frozenset[str]) -> Iterator[Node]:
    """The nodes below, not looking into those of the kinds `until`."""
    stack = list(reversed(node.children))
    while stack:
        node = stack.pop()
        yield node
        if node.type not in until:
            stack.extend(reversed(node.children))


class _Walk:
    def __init__(self, source: str, root: Node) -> None:
        self.source, self.root = source, root
        self.holes = {
            node.start_byte: node.end_byte
            for node in reversed(list(_iter_below(root, until=frozenset())))  # the outer one of two that begin together stays
            if node.type in _HOLES
        }
        self.commands: list[tuple[int, shell_text.ShellCommand]] = []  # and where each begins
        self.assigned: list[shell_text.ShellWord] = []
        self.hidden: list[str] = []
        self.documents: set[int] = set()
        self.stack = [root]

    def run(self) -> None:
        while self.stack:
            node = self.stack.pop()
            if node.type in _BLOCKS:
                self._visit_block(node)
            elif node.type in _WORDS or (node.type == "test_command" and node.children[0].type == "["):
                self._visit_command(node)
            elif visit := _VISITS.get(node.type):
                visit(self, node)
            else:
                raise shell_text.Unreadable(f"it has something that is not understood here (`{node.type}`)")

    def _get_text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte]

    def _push_holes(self, node: Node) -> None:
        """Go on with what stands inside a word that was read."""
        if node.type in _HOLES:
            self.stack.append(node)
        else:
            self.stack.extend(below for below in _iter_below(node, until=_HOLES) if below.type in _HOLES)

    def _visit_block(self, node: Node) -> None:
        """Statements, keywords and separators, with nothing but blanks between them."""
        if self.source.startswith("`", node.start_byte) and "\\" in self._get_text(node):
            raise shell_text.Unreadable("it has backslashes within backticks")
        at = 0 if node is self.root else node.start_byte
        apart = True  # what stands here begins where a statement may begin
        for child in node.children:
            gap = self.source[at : child.start_byte]
            self._check_gap(at, child.start_byte)
            apart = apart or "\n" in gap
            if not child.is_named:
                self._check_token(child)
                apart = True
            elif child.type == "comment":
                self._check_comment(child)
            elif node.type in ("for_statement", "case_statement", "case_item", "function_definition") and child.type in _NAMED:
                self._check_word(child)
                if child.type == "variable_name" and is_special_variable(self._get_text(child)):
                    self.hidden.append(f"a loop sets `{self._get_text(child)}`, which is more than data")
                apart = False
            else:
                if not apart and child.type not in ("do_group", "compound_statement", "case_item", "elif_clause", "else_clause"):
                    raise shell_text.Unreadable("it has two commands with nothing between them")
                self.stack.append(child)
                apart = False
            at = child.end_byte
        self._check_gap(at, len(self.source) if node is self.root else node.end_byte)

    def _check_token(self, node: Node) -> None:
        """A separator, or a reserved word that stands alone, as a shell wants it."""
        if node.type not in _TOKENS:
            raise shell_text.Unreadable(f"it has `{node.type}`, which is not understood here")
        before, after = self.source[node.start_byte - 1 : node.start_byte], self.source[node.end_byte : node.end_byte + 1]
        if node.type[0] not in _APART and (before not in _BEFORE or after not in (" \t\n" if node.type == "{" else _AFTER)):
            raise shell_text.Unreadable(f"it has `{node.type}` where it may be part of a word")

    def _check_gap(self, start: int, end: int) -> None:
        if not _GAP.fullmatch(self.source, start, end):
            raise shell_text.Unreadable(f"it has {self.source[start:end].strip()[:20]!r} where only blanks are expected")

    def _check_comment(self, node: Node) -> None:
        if node.start_byte and self.source[node.start_byte - 1] not in " \t\n;&|(":
            raise shell_text.Unreadable("it has a `#` that may or may not begin a comment")
        if self.source[node.end_byte : node.end_byte + 1] not in ("", "\n") or "\n" in self._get_text(node):
            raise shell_text.Unreadable("it has a comment whose end is not certain")

    def _check_word(self, node: Node) -> None:
        """A word that the grammar and we see alike."""
        if shell_text.lex_word(self.source, node.start_byte, node.end_byte, self.holes)[1] != node.end_byte:
            raise shell_text.Unreadable("it has a word that is not certain")
        if self.source[node.end_byte : node.end_byte + 1] not in _AFTER:
            raise shell_text.Unreadable("it has a word whose end is not certain")
        self._push_holes(node)

    def _visit_command(self, node: Node) -> None:
        self._scan_simple(node.start_byte, node.end_byte)
        self._push_holes(node)

    def _scan_simple(self, start: int, end: int) -> None:
        if self.source[end : end + 1] not in _AFTER:
            raise shell_text.Unreadable("it has a command whose end is not certain")
        words, assigned = shell_text.scan_simple_command(self.source, start, end, self.holes)
        self.assigned += assigned
        if words:
            self.commands.append((start, shell_text.ShellCommand(tuple(words))))

    def _visit_redirected(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        documents = [child for child in node.children if child.type == "heredoc_redirect"]
        plainly = body is None or body.type in _WORDS or (body.type == "test_command" and body.children[0].type == "[")
        if plainly and not documents:
            self._scan_simple(node.start_byte, node.end_byte)
            self._push_holes(node)
            return
        at = node.start_byte
        for child in node.children:
            self._check_gap(at, child.start_byte)
            at = child.end_byte
            if child == body:
                self.stack.append(child)
            elif child.type == "heredoc_redirect":
                self._visit_document(child)
            else:
                self._check_redirect(child)

    def _check_redirect(self, node: Node) -> None:
        """A redirection alone: the grammar takes words after it for its own."""
        if node.type not in _REDIRECTS or shell_text.scan_simple_command(
            self.source, node.start_byte, node.end_byte, self.holes
        ) != ([], []):
            raise shell_text.Unreadable("it has words after a redirection that are not certain")
        if self._get_text(node).startswith("&"):
            raise shell_text.Unreadable("it has `&>`, which shells do not read alike")
        self._push_holes(node)

    def _visit_document(self, node: Node) -> None:
        """A here-document: where its body begins and ends is counted again, line by line."""
        at = node.start_byte
        quoted = False
        for child in node.children:
            if child.type not in ("heredoc_body", "heredoc_end"):
                self._check_gap(at, child.start_byte)
            at = child.end_byte
            if child.type == "heredoc_start":
                quoted = self._check_delimiter(node, child)
            elif child.type == "heredoc_body":
                if not quoted:
                    self._check_live_body(child)
            elif child.type in ("pipeline", "command", "list"):
                self.stack.append(child)
            elif child.type in _REDIRECTS:
                self._check_redirect(child)
            elif child.type not in ("<<", "<<-", "heredoc_end", "&&", "||"):
                raise shell_text.Unreadable("it has more on the line of a here-document than is understood here")

    def _check_delimiter(self, node: Node, start: Node) -> bool:
        found = _DELIMITER.fullmatch(self._get_text(start))
        line = self.source.find("\n", start.end_byte)
        ends = [child for child in node.children if child.type == "heredoc_end"]
        if found is None or line < 0 or line in self.documents or len(ends) != 1:
            raise shell_text.Unreadable("it has a here-document whose end is not certain")
        self.documents.add(line)
        word = found[found.lastindex or 0]
        body = [child for child in node.children if child.type == "heredoc_body"]
        at = line + 1
        if body and (body[0].start_byte < at or self.source[at : body[0].start_byte].strip(" \t\n")):
            raise shell_text.Unreadable("it has a here-document whose beginning is not certain")
        strips = any(child.type == "<<-" for child in node.children)
        while at < len(self.source):
            stop = self.source.find("\n", at)
            stop = len(self.source) if stop < 0 else stop
            text = self.source[at:stop]
            text = text.lstrip("\t") if strips else text
            if text == word and ends[0].end_byte == stop:
                return found.lastindex != 4
            # bash also ends it at `EOF)` within a substitution, and goes on after a backslash.
            if text.startswith(word) or text.endswith("\\"):
                break
            at = stop + 1
        raise shell_text.Unreadable("it has a here-document whose end is not certain")

    def _check_live_body(self, node: Node) -> None:
        """The body of a document whose substitutions run."""
        rest = self._blank_out(node, _HOLES | {"simple_expansion"})
        if _LIVE.search(re.sub(r"\\.", "", rest, flags=re.DOTALL)):
            raise shell_text.Unreadable("it has a here-document with a substitution that is not understood here")

    def _blank_out(self, node: Node, kinds: frozenset[str]) -> str:
        """The text of a node with what stands inside of these kinds blanked; they are gone on with."""
        parts: list[str] = []
        at = node.start_byte
        for below in _iter_below(node, until=kinds):
            if below.type in kinds and below.start_byte >= at:
                parts += [self.source[at : below.start_byte], " "]
                at = below.end_byte
                if below.type in _HOLES:
                    self.stack.append(below)
                elif below.type == "raw_string":
                    # Within double quotes and an expansion these quotes do not quote.
                    if re.search(r"[$`\"\\{}]", self._get_text(below)):
                        raise shell_text.Unreadable("it has quotes within an expansion that are not certain")
                else:
                    self._check_inner_word(below)
        return "".join(parts) + self.source[at : node.end_byte]

    def _check_inner_word(self, node: Node) -> None:
        if shell_text.lex_word(self.source, node.start_byte, node.end_byte, self.holes)[1] != node.end_byte:
            raise shell_text.Unreadable("it has a word that is not certain")
        self._push_holes(node)

    def _visit_expansion(self, node: Node) -> None:
        """`${…}`: its operators may evaluate names and subscripts."""
        rest = self._blank_out(
            node, _SUBSTITUTIONS | {"arithmetic_expansion", "expansion", "simple_expansion", "string", "raw_string"}
        )
        if not re.fullmatch(r"\$\{(?:[^`'\"\\\n;&|()<>{}$]|\\[/.*?#%-])*\}", rest):
            raise shell_text.Unreadable("it has an expansion `${…}` that is not understood here")
        sets = re.match(r"\$\{([A-Za-z_][A-Za-z0-9_]*):{0,2}=", rest)
        if sets and is_special_variable(sets[1]):
            self.hidden.append(f"an expansion sets `{sets[1]}`, which is more than data")
        index = re.search(r"\[(.*?)\]", rest)
        offset = re.match(r"\$\{[\w@*\[\]]+:(?![-+=?])(.*)\}", rest, re.ASCII)
        plainly = (index is None or re.fullmatch(r"[0-9]+|[@*]", index[1])) and (
            offset is None or re.fullmatch(r"[0-9: -]+", offset[1])
        )
        if not plainly or rest.startswith("${!") or "@P" in rest or (offset and offset.end(1) - offset.start(1) != len(offset[1])):
            self.hidden.append("an expansion `${…}` may run what a variable says")

    def _visit_arithmetic(self, node: Node) -> None:
        rest = self._blank_out(node, _SUBSTITUTIONS | {"arithmetic_expansion", "expansion", "simple_expansion"})
        if not re.fullmatch(r"\$(?:\(\(|\[)[\w\s+*/%<>=!&|^~?:,()\-\[\].#@]*(?:\)\)|\])", rest, re.ASCII):
            raise shell_text.Unreadable("it has arithmetic that is not understood here")
        if re.search(r"[A-Za-z_]", self._get_text(node)):
            self.hidden.append("arithmetic may run what a variable says")

    def _visit_array(self, node: Node) -> None:
        at = node.start_byte
        for child in node.children:
            self._check_gap(at, child.start_byte)
            at = child.end_byte
            if child.is_named and child.type != "comment":
                self._check_word(child)
            elif child.type not in ("(", ")"):
                raise shell_text.Unreadable("it has an array that is not understood here")
        if "[" in self._get_text(node):
            self.hidden.append("the subscripts of an array may run a command")

    def _visit_test(self, node: Node) -> None:
        """`[[ … ]]`; another shell takes it for a command and what stands in it for more of them."""
        if node.children[0].type != "[[":
            raise shell_text.Unreadable("it has arithmetic that is not understood here")
        words = frozenset({"word", "string", "raw_string", "ansi_c_string", "concatenation", "number", "simple_expansion"}) | _HOLES
        at, rest = node.start_byte, ""
        for below in _iter_below(node, until=words | {"regex", "extglob_pattern"}):
            if below.type in words:
                self._check_inner_word(below)
            elif below.type in ("regex", "extglob_pattern"):
                if not re.fullmatch(r"(?:[^\s`'\"$;&<>\\\]]|\](?!\])|\$(?![({\[]))+", self._get_text(below)):
                    raise shell_text.Unreadable("it has a pattern that is not certain")
            else:
                continue
            rest += self.source[at : below.start_byte] + " "
            at = below.end_byte
        rest += self.source[at : node.end_byte]
        if re.search(r"[`'\"$;\\]", rest):
            raise shell_text.Unreadable("it has a test `[[ … ]]` that is not understood here")
        if re.search(r"[&|<>()]|(?<!\S)-(?:eq|ne|lt|le|gt|ge|v|R)(?!\S)", rest):
            self.hidden.append("a test `[[ … ]]` may run what a variable says, or is read otherwise by another shell")


_VISITS: Final[Mapping[str, Callable[[_Walk, Node], None]]] = {
    "redirected_statement": _Walk._visit_redirected,
    "file_redirect": _Walk._visit_command,
    "herestring_redirect": _Walk._visit_command,
    "expansion": _Walk._visit_expansion,
    "arithmetic_expansion": _Walk._visit_arithmetic,
    "array": _Walk._visit_array,
    "test_command": _Walk._visit_test,
}
