"""The tree of errors in the docstring of ``headgate.errors`` is that of the classes, with their markers."""

from __future__ import annotations

import re

from headgate import errors
from headgate.errors import Definite, HeadgateError, Transient

_LINE = re.compile(
    r"^    (?P<depth>(?:[│ ]   )*)(?:├──|└──) (?P<name>\w+)(?: +(?P<marker>Definite|Transient))?", re.MULTILINE
)


def test_the_tree_says_what_a_retry_does() -> None:
    path: list[type[HeadgateError]] = [HeadgateError]
    named: set[type[HeadgateError]] = {HeadgateError}
    for line in _LINE.finditer(errors.__doc__ or ""):
        kind = getattr(errors, line["name"])
        del path[1 + len(line["depth"]) // 4 :]
        assert kind.__bases__[0] is path[-1], kind
        path.append(kind)
        named.add(kind)
        is_marked = issubclass(kind, Transient), issubclass(kind, Definite)
        inherits = line["marker"] is None and path[-2] is not HeadgateError
        assert inherits or is_marked == (line["marker"] == "Transient", line["marker"] == "Definite"), kind
    public = {getattr(errors, name) for name in errors.__all__} - {
        Transient,
        Definite,
        errors.error_line,
        errors.runbook_entry,
    }
    assert named == public
