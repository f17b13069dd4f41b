"""Check prose and names against the language rules of CONTRIBUTING: ``python -m tools.check_language [FILE ...]``.

Reads comments and strings of Python files, docstrings among them, and the text of Markdown pages. Two rules:

- A condition begins with ``if`` or ``when``, not with its verb: "If no row exists, …", not "Is there no row, …".
- A term that the glossary replaces is not used (``TERMS``).

And the names that Python files bind: variables, parameters, functions and classes. One rule:

- A name tells what the value is, not how it came (``VAGUE``, in any letter case, with or without leading underscores).
  Imports, attributes and keyword arguments are named elsewhere; annotated fields of classes may be names of data.

Prints ``file:line: the text: what to write`` for each finding. Exits with 1 if there is a finding.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SUFFIXES: Final = (".py", ".md")
TERMS: Final = {
    r"(?<!-)anew": "again, from the start",
    r"stretch(?:es)?": "range",
    r"kept log": "binlog archive",
    r"by and by": "over time",
    r"heed(?:s|ed|ing)?": "respect, consider",
    r"whoever": "the actor's name: the reader, the caller",
    r"somebody|anybody": "the actor's name, or the passive",
}
VAGUE: Final = {"found", "said", "told", "asked", "given", "own", "means", "heed"}
VERB_FIRST: Final = re.compile(
    r"(?:^\s*(?=[A-Z])|[.!?]\s+(?=[A-Z])|[:;] )"
    r"((?i:Is|Are|Was|Were|Did|Does|Had) (?:there|it|an?|the|no|one|this|that|any|all|its|they)\b[^.?!;:]*,)"
    r"(?![^.?!;]*\?)"
)
FORBIDDEN: Final = re.compile(rf"\b({'|'.join(TERMS)})\b", re.IGNORECASE)
QUOTED: Final = re.compile(r"\"[^\"]*\"|“[^”]*”|``[^`]*``|`[^`]*`")
"""What a page quotes: code, and examples of what not to write."""
NAME: Final = re.compile(r"(['\"])[\w.-]*\1")
"""A string that is one word is a name of data, not prose."""
TEXTS: Final = {tokenize.STRING} | {getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def findings(text: str) -> Iterator[tuple[int, str, str]]:
    """Offset, text and advice of each finding in a piece of prose."""
    prose = QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)
    for match in FORBIDDEN.finditer(prose):
        advice = next(word for term, word in TERMS.items() if re.fullmatch(term, match[0], re.IGNORECASE))
        yield match.start(), match[0], advice
    for match in VERB_FIRST.finditer(prose):
        yield match.start(1), " ".join(match[1].split()), "begin the condition with 'if' or 'when'"


def pieces(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each piece of prose in a file: comments and strings, or a whole page without its code blocks.

    :raises SyntaxError, tokenize.TokenError: the file is not Python.
    """
    if file.suffix == ".md":
        text = file.read_text(encoding="utf-8")
        yield 1, re.sub(r"(?ms)^```.*?^```", lambda code: "\n" * code[0].count("\n"), text)
        return
    with tokenize.open(file) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string.lstrip("# ")
            elif token.type in TEXTS and not NAME.fullmatch(token.string):
                yield token.start[0], re.sub(r"^\w*(?:\"\"\"|'''|\"|')|(?:\"\"\"|'''|\"|')$", " ", token.string)


def bound_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each binding, without imports and annotated fields of classes."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {line.target for node in classes for line in node.body if isinstance(line, ast.AnnAssign)}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ) if node not in fields:
                yield node.lineno, name


def check(file: Path) -> list[str]:
    """Findings of one file, a line each."""
    lines = []
    if not file.name.endswith("_language.py"):  # this file and its test spell what they forbid
        lines = [
            (line + text.count("\n", 0, offset), words, advice)
            for line, text in pieces(file)
            for offset, words, advice in findings(text)
        ]
    if file.suffix == ".py":
        names = bound_names(ast.parse(file.read_bytes(), file))
        lines += [(line, name, "name it after what it is") for line, name in names if name.lstrip("_").lower() in VAGUE]
    return [f"{file}:{line}: {words}: {advice}" for line, words, advice in sorted(lines, key=itemgetter(0))]


def tracked() -> list[Path]:
    """Files that git has."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [file for name in listed.splitlines() if name.endswith(SUFFIXES) and (file := ROOT / name).exists()]


def main(arguments: Sequence[str]) -> int:
    lines = [line for file in [Path(name) for name in arguments] or tracked() for line in check(file)]
    print("\n".join(lines) or "language: nothing found")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
