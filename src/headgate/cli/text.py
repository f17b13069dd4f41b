"""Changes as readable text: one line per change below one line per transaction, made from the JSON lines.

::

    2026-01-02 03:04:05.000006  3e11fa47-71ca-11e1-9e33-c80aa9429562:23
      + shop.orders  id=1 qty=2
      ~ shop.orders  id=1 qty=2→3
      - shop.orders  id=1 qty=3
      x shop.orders  truncated
      # shop.orders  ALTER TABLE orders ADD COLUMN note TEXT
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import typer

from headgate.names import printable

__all__ = ["TextLines"]

_SIGNS: Final = {"c": "+", "u": "~", "d": "-", "r": "=", "t": "x", "ddl": "#"}
_COLOURS: Final = {"c": "green", "u": "yellow", "d": "red", "r": "cyan", "t": "magenta", "ddl": "blue"}
_LONGEST_VALUE: Final = 60
"""Characters of a value before it is cut."""


class TextLines:
    """Converter of JSON lines to text; it remembers the last printed heading of a transaction.

    :param colours: whether to colour; the environment variable NO_COLOR prevents it.
    """

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours and not os.environ.get("NO_COLOR")
        self._heading: str | None = None

    def of(self, line: str, keys: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """Yield the lines for one change.

        :param keys: key columns by ``db.table``; they are shown even if they have not changed.
        """
        change: dict[str, Any] = json.loads(line)
        moment = str(change["ts"]).replace("T", " ").removesuffix("Z")
        heading = f"{moment}  {change['gtid'] or change['file']}"  # without GTIDs only these distinguish transactions
        if heading != self._heading:
            self._heading = heading
            yield self._style(heading, dim=True)
        op, table = change["op"], printable(f"{change['db']}.{change['table']}")
        what = printable(_what(change, keys.get(f"{change['db']}.{change['table']}", ())))
        sign = self._style(_SIGNS[op], fg=_COLOURS[op], bold=True)
        yield f"  {sign} {self._style(table, bold=True)}  {what}"

    def _style(self, text: str, **style: Any) -> str:
        return typer.style(text, **style) if self._colours else text


def _what(change: Mapping[str, Any], key: Sequence[str]) -> str:
    op, before, after = change["op"], change.get("before"), change.get("after")
    if op == "t":
        return "truncated"
    if op == "ddl":
        return _cut(" ".join(str(change["statement"]).split()), 200)
    if op != "u" or before is None or after is None:
        return " ".join(f"{name}={_value(value)}" for name, value in (after or before or {}).items())
    parts = []
    for name, value in after.items():
        if name not in before or before[name] != value:
            parts.append(f"{name}={_value(before.get(name))}→{_value(value)}")
        elif name in key:
            parts.append(f"{name}={_value(value)}")
    return " ".join(parts)


def _value(value: Any) -> str:
    return _cut(json.dumps(value, ensure_ascii=False), _LONGEST_VALUE)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
