"""A signal: what somebody asks of a running pipeline, checked as far as that can be done without a server.

The form is Debezium's, ``{"id": …, "type": …, "data": {…}}`` (Debezium's documentation, "Sending signals to a Debezium
connector"), as far as this table goes:

====================  ==================================================================================
``execute-snapshot``  ``data-collections``, ``type`` (INCREMENTAL or BLOCKING), ``additional-conditions``
                      ``[{"data-collection": …, "filter": …}]``, ``surrogate-key``
``stop-snapshot``     ``data-collections``; none: all
``pause-snapshot``    nothing
``resume-snapshot``   nothing
``log``               ``message``; ``{}`` in it becomes the stream's GTID set
====================  ==================================================================================

``data-collections`` are regular expressions that must match the whole of ``db.table``, case-sensitive. ``data`` may be
JSON text, too, as in a signal table. What is unknown is refused, so that a misspelt condition does not read a whole
table.

A signal's id names its file in the inbox, percent-encoded, so any id is a valid one and none leaves the folder. The
same id twice, while the first is not done, is the same signal.
"""

from __future__ import annotations

import difflib
import json
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol
from urllib.parse import quote

from headgate.carrier import signal_path
from headgate.errors import ConfigError

__all__ = ["SIGNAL_TYPES", "Condition", "Outbox", "Signal", "check_filter", "parse_signal", "signal_file", "submit"]

SIGNAL_TYPES: Final = ("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "log")

_KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "execute-snapshot": ("additional-condition", "additional-conditions", "data-collections", "surrogate-key", "type"),
    "stop-snapshot": ("data-collections", "type"),
    "pause-snapshot": ("type",),
    "resume-snapshot": ("type",),
    "log": ("message",),
}
_FILE_LIMIT: Final = 180
"""Characters of an encoded id: file systems allow names of 255 bytes, and a temporary name is longer."""
_TEXT_LIMIT: Final = 1 << 16
"""Characters of a condition or message: they travel in offsets and ledgers."""


class Outbox(Protocol):
    """Where signals are put: ``headgate.carrier.ControlFolder``."""

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Put ``value`` under ``name``, whole or not at all."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows to read of the tables that a regular expression matches."""

    collection: str
    filter: str


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal that makes sense. See the module's text for the fields."""

    id: str
    type: str
    collections: tuple[str, ...] = ()
    kind: Literal["INCREMENTAL", "BLOCKING"] = "INCREMENTAL"
    conditions: tuple[Condition, ...] = ()
    surrogate_key: str | None = None
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """In the form that :func:`parse_signal` reads."""
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
        """Whether ``data-collections`` names ``db.table``; with none, every table is named."""
        return not self.collections or any(re.fullmatch(pattern, table) for pattern in self.collections)

    def unmatched(self, tables: list[str]) -> list[str]:
        """The expressions that match none of these tables."""
        return [one for one in self.collections if not any(re.fullmatch(one, table) for table in tables)]

    def filter_of(self, table: str) -> str | None:
        """The condition for ``db.table``: the first whose expression matches; None: all its rows."""
        return next((one.filter for one in self.conditions if re.fullmatch(one.collection, table)), None)

    def idle_conditions(self, tables: list[str]) -> list[str]:
        """The expressions of conditions that match none of these tables."""
        found = [one.collection for one in self.conditions]
        return [one for one in found if not any(re.fullmatch(one, table) for table in tables)]


def parse_signal(value: Any, *, name: str | None = None) -> Signal:
    """Check a signal.

    :param value: an object as in the module's text, or its JSON text.
    :param name: the id of a signal that carries none; by default it gets a random one.
    :raises ConfigError: what is wrong with it.
    """
    given = _object(value, "a signal")
    unknown = sorted(set(given) - {"id", "type", "data", "submitted_us", "additionalData"})
    if unknown:
        raise ConfigError(f"a signal has id, type and data, but no {unknown[0]!r}")
    kind = given.get("type")
    if kind not in SIGNAL_TYPES:
        near = difflib.get_close_matches(str(kind), SIGNAL_TYPES, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(SIGNAL_TYPES)}"
        raise ConfigError(f"unknown signal type {kind!r}: {hint}")
    data = _object(given.get("data") or {}, "the data of a signal")
    _check_keys(kind, data)
    conditions = _conditions(data)
    signal = Signal(
        id=_id(given.get("id"), name),
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
    """The name of a signal's file without ``.json``: its id, percent-encoded, a leading dot too."""
    encoded = quote(name, safe="")
    return f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded


def submit(inbox: Outbox, signal: Signal) -> str:
    """Put a signal into a pipeline's inbox; it is safe there when this returns. Gives the signal's id back.

    Signals of one planning are taken in the order in which they were submitted.
    """
    value = {**signal.to_dict(), "submitted_us": time.time_ns() // 1000}
    inbox.write(signal_path(signal_file(signal.id)), value)
    return signal.id


# --- the fields


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if isinstance(value, (str, bytes)):
        try:
            value = json.loads(value)
        except ValueError:
            raise ConfigError(f"{what} is not JSON: {_short(value)}") from None
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} is not a JSON object: {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def _id(given: Any, name: str | None) -> str:
    if given is None or given == "":
        given = name or uuid.uuid4().hex
    if not isinstance(given, str):
        raise ConfigError(f"the id of a signal is {given!r}, not text")
    if len(signal_file(given)) > _FILE_LIMIT:
        raise ConfigError(f"the id of a signal is too long: {_short(given)}")
    return given


def _check_keys(kind: str, data: Mapping[str, Any]) -> None:
    for key in data:
        if key not in _KNOWN[kind]:
            near = difflib.get_close_matches(str(key), _KNOWN[kind], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"the data of {kind} has no {key!r}{hint}")


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
    given = data.get("data-collections")
    if given is None or given == []:
        if kind == "execute-snapshot":
            raise ConfigError(r'execute-snapshot has no "data-collections": name tables, such as ["shop\\.orders"]')
        return ()
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, str) for one in given):
        raise ConfigError(f"data-collections is {_short(given)}; expected a list of regular expressions")
    for one in given:
        _check_expression(one)
    return tuple(dict.fromkeys(given))


def _check_expression(text: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(
            rf"{text!r} is not a regular expression ({error}); for all tables of a database write shop\..*"
        ) from None


def _conditions(data: Mapping[str, Any]) -> tuple[Condition, ...]:
    given = data.get("additional-conditions") or []
    if not isinstance(given, (list, tuple)):
        raise ConfigError(f"additional-conditions is {_short(given)}; expected a list of objects")
    found = []
    for one in given:
        fields = _object(one, "an additional condition")
        if set(fields) != {"data-collection", "filter"} or not all(isinstance(text, str) for text in fields.values()):
            raise ConfigError(
                f'an additional condition is {_short(dict(fields))}; expected {{"data-collection": …, "filter": …}}'
            )
        _check_expression(fields["data-collection"])
        found.append(Condition(fields["data-collection"], check_filter(fields["filter"])))
    for_all = _text(data, "additional-condition")
    if for_all is not None:
        found.append(Condition(".*", check_filter(for_all)))
    return tuple(found)


_QUOTED = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)
_COMMENT = re.compile(r"--|#|/\*|\*/")


def check_filter(text: str) -> str:
    """A condition that stays one inside parentheses; whether its names and types make sense, the server says.

    :raises ConfigError: it does not.
    """
    if not text.strip() or len(text) > _TEXT_LIMIT:
        raise ConfigError(f"the filter {_short(text)} is no condition")
    bare = _QUOTED.sub(" x ", text)
    problem = None
    if set(bare) & set("'\"`"):
        problem = "a quote does not end"
    elif ";" in bare or _COMMENT.search(bare):
        problem = "comments and semicolons have no place in it"
    elif not _balanced(bare):
        problem = "its parentheses do not match"
    elif re.search(r"\bselect\b", bare, re.IGNORECASE):
        problem = "write the condition alone; a SELECT would see other tables as of another moment"
    if problem is not None:
        raise ConfigError(f"the filter {_short(text)} cannot be used: {problem}")
    return text


def _balanced(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return depth == 0
