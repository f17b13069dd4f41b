"""Signals to a running pipeline, checked as far as possible without a server.

The form is Debezium's, ``{"id": …, "type": …, "data": {…}}`` (Debezium's documentation, "Sending signals to a Debezium
connector"), limited to this table:

====================  ==================================================================================
``execute-snapshot``  ``data-collections``, ``type`` (INCREMENTAL or BLOCKING), ``additional-conditions``
                      ``[{"data-collection": …, "filter": …}]``, ``surrogate-key``
``stop-snapshot``     ``data-collections``; without: all
``pause-snapshot``    no data
``resume-snapshot``   no data
``log``               ``message``; ``{}`` in it is replaced by the stream's GTID set
``forget-table``      ``data-collections``; not Debezium's: tables that the pipeline does not follow any more
====================  ==================================================================================

A filter is a condition on the table's columns. For BLOCKING it may also be Debezium's SELECT, as far as that is such a
condition: ``SELECT * FROM db.table WHERE condition``.

``data-collections`` are regular expressions that must match the whole of ``db.table``, case-sensitive. ``data`` may
also be JSON text, as in a signal table. Unknown keys are refused, so that a misspelt condition does not read a whole
table.

A signal's id, percent-encoded, names its file in the inbox, so any id is valid and none leaves the folder. While a
signal is not done, a second one with its id is the same signal.
"""

from __future__ import annotations

import difflib
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol
from urllib.parse import quote

from headgate.carrier import SINK_SIGNALS, sent_at, signal_path
from headgate.errors import ConfigError
from headgate.parsing import parse_json

__all__ = [
    "Condition",
    "Outbox",
    "Signal",
    "check_filter",
    "outside_signal",
    "parse_signal",
    "sending_us",
    "signal_file",
    "submit",
]

_SIGNAL_TYPES: Final = ("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log", "forget-table")

_KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "execute-snapshot": ("additional-condition", "additional-conditions", "data-collections", "surrogate-key", "type"),
    "stop-snapshot": ("data-collections", "type"),
    "pause-snapshot": ("type",),
    "resume-snapshot": ("type",),
    "log": ("message",),
    "forget-table": ("data-collections",),
}
_REFUSED: Final[Mapping[str, str]] = {
    "schema-changes": "headgate keeps no schema history that schema-changes could correct: the log and"
    " information_schema describe the columns. If a table is stopped because its columns are unknown, send"
    " execute-snapshot for it",
    "set-binlog-position": "no signal sets the position of a stream. To get past a part of the log that cannot be read,"
    " stop the pipeline, remove its _headgate/checkpoint and _headgate/inbox, and start it: all tables are read again",
}
"""Debezium's other signals: what to do instead."""
_FILE_LIMIT: Final = 180
"""Characters of an encoded id. File systems allow names of 255 bytes, and a temporary name is longer."""
_TEXT_LIMIT: Final = 1 << 16
"""Characters of a condition or message, which offsets and ledgers store."""


class Outbox(Protocol):
    """Destination of signals: ``headgate.carrier.ControlFolder``."""

    def signals(self) -> Mapping[str, Mapping[str, Any]]:
        """Return those that wait, by name."""

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write ``value`` under ``name``, atomically."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows to read of the tables that a regular expression matches."""

    collection: str
    filter: str


@dataclass(frozen=True, slots=True)
class Signal:
    """A valid signal. The module's docstring describes the fields."""

    id: str
    type: str
    collections: tuple[str, ...] = ()
    kind: Literal["INCREMENTAL", "BLOCKING"] = "INCREMENTAL"
    conditions: tuple[Condition, ...] = ()
    surrogate_key: str | None = None
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the form that :func:`parse_signal` reads."""
        data: dict[str, Any] = {}
        if self.type in ("execute-snapshot", "stop-snapshot"):
            data["type"] = self.kind
        if self.collections:
            data["data-collections"] = list(self.collections)
        if self.conditions:
            data["additional-conditions"] = [
                {"data-collection": one.collection, "filter": one.filter} for one in self.conditions
            ]
        if self.surrogate_key is not None:
            data["surrogate-key"] = self.surrogate_key
        if self.type == "log":
            data["message"] = self.message
        return {"id": self.id, "type": self.type, "data": data}

    def names(self, table: str) -> bool:
        """Return whether ``data-collections`` matches ``db.table``; without expressions every table matches."""
        return not self.collections or any(re.fullmatch(pattern, table) for pattern in self.collections)

    def unmatched(self, tables: list[str]) -> list[str]:
        """Return the expressions that match none of these tables."""
        return [one for one in self.collections if not any(re.fullmatch(one, table) for table in tables)]

    def filter_of(self, table: str) -> str | None:
        """Return the filter of the first condition that matches ``db.table``, or None for all rows."""
        return next((one.filter for one in self.conditions if re.fullmatch(one.collection, table)), None)

    def idle_conditions(self, tables: list[str]) -> list[str]:
        """Return the expressions of conditions that match none of these tables."""
        expressions = [one.collection for one in self.conditions]
        return [one for one in expressions if not any(re.fullmatch(one, table) for table in tables)]


def parse_signal(value: Any, *, name: str | None = None) -> Signal:
    """Check a signal.

    :param value: an object as in the module's docstring, or its JSON text.
    :param name: the id of a signal without one; by default a random id.
    :raises ConfigError: the signal is invalid; the message says why.
    """
    fields = _object(value, "a signal")
    unknown = sorted(set(fields) - {"id", "type", "data", "submitted_us", "additionalData"})
    if unknown:
        raise ConfigError(f"unknown key {unknown[0]!r} in a signal; expected id, type and data")
    kind = fields.get("type")
    refusal = _REFUSED.get(str(kind))
    if refusal is not None:
        raise ConfigError(refusal)
    if kind not in _SIGNAL_TYPES:
        near = difflib.get_close_matches(str(kind), _SIGNAL_TYPES, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(_SIGNAL_TYPES)}"
        raise ConfigError(f"unknown signal type {kind!r}: {hint}")
    data = _object(fields.get("data") or {}, "the data of a signal")
    _check_keys(kind, data)
    conditions = _conditions(data, _kind(data))
    signal = Signal(
        id=_id(fields.get("id"), name),
        type=kind,
        collections=_collections(kind, data),
        kind=_kind(data),
        conditions=conditions,
        surrogate_key=_text(data, "surrogate-key"),
        message=_text(data, "message") or "",
    )
    if kind == "log" and not signal.message:
        raise ConfigError('the data of a log signal has no "message"')
    return signal


def signal_file(name: str) -> str:
    """Return the file name of a signal without ``.json``: its id, percent-encoded, a leading dot too."""
    encoded = quote(name, safe="")
    return f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded


def sending_us(inbox: Outbox, now_us: int | None = None) -> int:
    """Return the time of a signal that is sent now, in microseconds since 1970 UTC: after those that wait, also if they
    were sent on a machine whose clock is ahead, or this one's went back. So a pause never comes after its resume.

    :param now_us: by this machine's clock.
    """
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    waiting = map(sent_at, inbox.signals().values())
    return max([now_us, *(sent_us + 1 for sent_us in waiting if sent_us is not None)])


def submit(inbox: Outbox, signal: Signal, sent_us: int | None = None) -> str:
    """Put a signal into a pipeline's inbox and return its id. The signal is safe there when this returns.

    Signals of one planning are taken in the order in which they were submitted.

    :param sent_us: of :func:`sending_us`, the default. Its answer has the same.
    """
    value = {**signal.to_dict(), "submitted_us": sending_us(inbox) if sent_us is None else sent_us}
    inbox.write(signal_path(signal_file(signal.id)), value)
    return signal.id


# --- the fields


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if isinstance(value, (str, bytes)):
        try:
            value = parse_json(value)
        except ValueError:
            raise ConfigError(f"{what} is not JSON: {_short(value)}") from None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} is not a JSON object: {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def _id(value: Any, name: str | None) -> str:
    if value is None or value == "":
        value = name or uuid.uuid4().hex
    if not isinstance(value, str):
        raise ConfigError(f"the id of a signal is {value!r}, not text")
    if len(signal_file(value)) > _FILE_LIMIT:
        raise ConfigError(f"the id of a signal is too long: {_short(value)}")
    return value


def _check_keys(kind: str, data: Mapping[str, Any]) -> None:
    for key in data:
        if key not in _KNOWN[kind]:
            near = difflib.get_close_matches(str(key), _KNOWN[kind], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"unknown key {key!r} in the data of {kind}{hint}")


def _text(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or len(value) > _TEXT_LIMIT:
        raise ConfigError(f"{key} is {_short(value)}; expected text")
    return value


def _kind(data: Mapping[str, Any]) -> Literal["INCREMENTAL", "BLOCKING"]:
    value = str(data.get("type") or "INCREMENTAL").upper()
    if value == "INCREMENTAL":
        return "INCREMENTAL"
    if value == "BLOCKING":
        return "BLOCKING"
    raise ConfigError(f"a snapshot's type is {data['type']!r}; expected INCREMENTAL or BLOCKING")


def _collections(kind: str, data: Mapping[str, Any]) -> tuple[str, ...]:
    expressions = data.get("data-collections")
    if expressions is None or expressions == []:
        if kind in ("execute-snapshot", "forget-table"):
            raise ConfigError(rf'{kind} has no "data-collections": name tables, such as ["shop\\.orders"]')
        return ()
    if not isinstance(expressions, (list, tuple)) or not all(isinstance(one, str) for one in expressions):
        raise ConfigError(f"data-collections is {_short(expressions)}; expected a list of regular expressions")
    for one in expressions:
        _check_expression(one)
    return tuple(dict.fromkeys(expressions))


_SET: Final = re.compile(r"\\.|\[\^?(?P<set>\]?(?:\\.|[^\]\\]|\\\Z)*)(?:\]|\Z)", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_SET_OPERATION: Final = re.compile(r"\[|--|&&|~~|\|\|")
"""What Python warns of: a later version may read it as Java's ``Pattern`` does."""


def _check_expression(text: str) -> None:
    for part in _SET.finditer(text):
        if part["set"] and _SET_OPERATION.search(_ESCAPED.sub("", part["set"])):
            raise ConfigError(
                rf"{text!r} has a set in a set, or an operation on sets, at {part[0]!r}; Java and Python read it in"
                r" different ways: name each character once, and write \[ for a bracket"
            )
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            rf"{text!r} is not a regular expression ({error}); for all tables of a database write shop\..*"
        ) from None


def _conditions(data: Mapping[str, Any], kind: Literal["INCREMENTAL", "BLOCKING"]) -> tuple[Condition, ...]:
    entries = data.get("additional-conditions") or []
    if not isinstance(entries, (list, tuple)):
        raise ConfigError(f"additional-conditions is {_short(entries)}; expected a list of objects")
    conditions = []
    for one in entries:
        fields = _object(one, "an additional condition")
        if set(fields) != {"data-collection", "filter"} or not all(isinstance(text, str) for text in fields.values()):
            raise ConfigError(
                f'an additional condition is {_short(dict(fields))}; expected {{"data-collection": …, "filter": …}}'
            )
        _check_expression(fields["data-collection"])
        if kind == "BLOCKING" and _BEGINS_SELECT.match(fields["filter"]):
            conditions += _selected(fields["data-collection"], fields["filter"])
        else:
            conditions.append(Condition(fields["data-collection"], check_filter(fields["filter"])))
    for_all = _text(data, "additional-condition")
    if for_all is not None:
        conditions.append(Condition(".*", check_filter(for_all)))
    return tuple(conditions)


_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)
_COMMENT = re.compile(r"--|#|/\*|\*/")
_SUBQUERY = re.compile(r"(?<!\.)\b(SELECT|TABLE)\b", re.IGNORECASE)
"""Reserved words, so a column with such a name is quoted or behind a dot."""


def outside_signal(signal: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a signal from outside the lake; ``{problem}`` if its type is one that only the sinks send."""
    if signal.get("type") in SINK_SIGNALS:
        return {"problem": f"unknown signal type {signal['type']!r}"}
    return signal


def check_filter(text: str) -> str:
    """Return the condition if it is safe inside parentheses. The server checks its names and types.

    :raises ConfigError: the condition is not safe.
    """
    if not text.strip() or len(text) > _TEXT_LIMIT:
        raise ConfigError(f"the filter {_short(text)} is not a condition")
    bare = _QUOTED.sub(" x ", text)
    problem = None
    if set(bare) & set("'\"`"):
        problem = "a quote is not closed"
    elif ";" in bare or _COMMENT.search(bare):
        problem = "comments and semicolons are not allowed"
    elif not _balanced(bare):
        problem = "its parentheses do not match"
    elif _SUBQUERY.search(bare):
        problem = "write the condition alone; a subquery would read other tables as of another moment"
    if problem is not None:
        raise ConfigError(f"the filter {_short(text)} cannot be used: {problem}")
    return text


_BEGINS_SELECT = re.compile(r"\s*SELECT\b", re.IGNORECASE)
_NAME = r"([\w$]+|`(?:[^`]|``)+`)"
_SELECT = re.compile(
    rf"\s*SELECT\s+\*\s+FROM\s+{_NAME}\s*\.\s*{_NAME}(?:\s+WHERE\b(.*?)|\s*);?\s*", re.IGNORECASE | re.DOTALL
)
_CLAUSES = re.compile(
    r"\b(EXCEPT|FOR|GROUP|HAVING|INTERSECT|INTO|LIMIT|LOCK|ORDER|PROCEDURE|UNION|WINDOW)\b", re.IGNORECASE
)
"""Reserved words that begin a clause after a condition; in one they are only inside parentheses."""


def _selected(collection: str, text: str) -> list[Condition]:
    """Return the condition of a blocking snapshot's SELECT; none if it reads all rows.

    :raises ConfigError: the SELECT is more than a condition on the one table that ``collection`` names.
    """
    match = _SELECT.fullmatch(text)
    clause = _CLAUSES.search(_outside_parentheses(match[3])) if match and match[3] else None
    if match is None or clause is not None:
        reason = f"; it has {clause[1].upper()}" if clause is not None else ""
        raise ConfigError(
            f"the filter {_short(text)} cannot be used: a blocking snapshot's SELECT must be SELECT * FROM db.table"
            f" WHERE condition{reason}; chunks divide the table, so it has no other clauses, columns or tables"
        )
    table = ".".join(name.strip("`").replace("``", "`") for name in match.group(1, 2))
    if re.sub(r"\\(.)|\[(.)\]", r"\1\2", collection) != table:
        raise ConfigError(
            f"the filter {_short(text)} selects from {table}, and its data-collection is {collection!r}: a SELECT"
            " belongs to the one table that it names; write a condition alone for several tables"
        )
    return [] if match[3] is None else [Condition(re.escape(table), check_filter(match[3].strip()))]


def _outside_parentheses(text: str) -> str:
    """Return a condition without its quoted parts and parentheses' contents."""
    bare, before = _QUOTED.sub(" x ", text), ""
    while bare != before:
        before, bare = bare, re.sub(r"\([^()]*\)", " x ", bare)
    return bare


def _balanced(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0
