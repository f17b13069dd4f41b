"""What a consumer asks for: the parameters of ``/stream`` and ``/register``, checked.

Parameters and their forms are Databus's (``ReadEventsRequestProcessor.java``, ``Checkpoint.java``,
``CheckpointMult.java``); ``wait`` is ours.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headgate.relay._buffer import Place
from headgate.relay._choice import filter_rules
from headgate.relay._sources import SourceNames

__all__ = ["InvalidParameterError", "StreamRequest", "number", "place_of", "source_ids", "stream_request"]

_ENCODINGS: Final = ("binary", "json", "json_plain_value")
_LARGEST_INT: Final = 2**31 - 1
_LONGEST_WAIT_MS: Final = 60_000
_EVENT_VERSIONS: Final = (0, 2)
"""``maxev`` 0 means version 1 (its version byte is 0)."""


class InvalidParameterError(Exception):
    """A parameter of a request is wrong."""

    def __init__(self, command: str, name: str, value: object) -> None:
        super().__init__(f"Invalid value for parameter {name} of command {command}: {value}")


@dataclass(frozen=True)
class StreamRequest:
    """A checked ``/stream``."""

    size: int
    """Most bytes of events, as they are in binary."""
    encoding: str
    sources: Sequence[int] | None
    """Ids; None: all of the partitions."""
    places: Mapping[int, Place]
    """Physical partition → from where; in the order in which they take turns."""
    latest: bool
    """From the newest window on, whatever the places say."""
    version: int
    """The newest event version that the consumer reads."""
    wait_ms: int
    """How long to wait for events if there are none."""
    rules: Sequence[Sequence[int]] = ()
    """Of the filters, as in :class:`headgate.relay._choice.Choice`."""


def number(parameters: Mapping[str, str], command: str, name: str, default: int | None = None) -> int:
    """A number that is not negative; without a default it must be there."""
    text = parameters.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or int(text) > _LARGEST_INT:
        raise InvalidParameterError(command, name, text)
    return int(text)


def _json(command: str, name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidParameterError(command, name, text) from None


def source_ids(text: str, names: SourceNames, command: str) -> list[int]:
    """``40,41`` as ids of sources that are there."""
    found = []
    for part in text.split(","):
        digits = part.strip()
        if not digits.isascii() or not digits.isdigit() or names.by_id(int(digits)) is None:
            raise InvalidParameterError(command, "sources", part)
        found.append(int(digits))
    return found


def place_of(checkpoint: Any) -> Place:
    """The place that a checkpoint (a JSON object) means; ``windowScn`` −1, or none, is the oldest there is.

    :raises ValueError: it is none, or one of the bootstrap, which comes from elsewhere.
    """
    if not isinstance(checkpoint, dict):
        raise ValueError("not an object")  # noqa: TRY004 - one kind of error for all that is wrong
    mode = checkpoint.get("consumption_mode", "ONLINE_CONSUMPTION")
    if mode not in ("INIT", "ONLINE_CONSUMPTION"):
        raise ValueError("a checkpoint of the bootstrap")
    scn, offset = checkpoint.get("windowScn", -1), checkpoint.get("windowOffset", -1)
    if not all(isinstance(one, int) and not isinstance(one, bool) and -1 <= one < 2**63 for one in (scn, offset)):
        raise ValueError("not numbers")
    return Place(scn, offset)


def stream_request(parameters: Mapping[str, str], names: SourceNames, partitions: Sequence[int]) -> StreamRequest:
    """Check the parameters of ``/stream``.

    :param partitions: the physical partitions there are.
    :raises InvalidParameterError: one is missing, wrong, or of something that is not there.
    """
    size = number(parameters, "stream", "size")
    encoding = parameters.get("output", "").lower()
    if encoding not in _ENCODINGS:
        raise InvalidParameterError("stream", "output", parameters.get("output"))
    version = number(parameters, "stream", "maxev", 0)
    if version not in _EVENT_VERSIONS:
        raise InvalidParameterError("stream", "maxev", version)
    sources, wanted = _subscribed(parameters, names, partitions)
    return StreamRequest(
        size, encoding, sources, _places(parameters, wanted),
        latest=parameters.get("streamFromLatestScn", "").lower() == "true", version=max(version, 1),
        wait_ms=min(number(parameters, "stream", "wait", 0), _LONGEST_WAIT_MS),
        rules=_rules(parameters),
    )  # fmt: skip


def _rules(parameters: Mapping[str, str]) -> Sequence[Sequence[int]]:
    text = parameters.get("filters")
    try:
        return () if text is None else filter_rules(_json("stream", "filters", text))
    except ValueError:
        raise InvalidParameterError("stream", "filters", text) from None


def _subscribed(
    parameters: Mapping[str, str], names: SourceNames, partitions: Sequence[int]
) -> tuple[list[int] | None, list[int]]:
    """Ids of sources (None: all), and the physical partitions that they are in."""
    subscriptions, listed = parameters.get("subs"), parameters.get("sources")
    if listed is None and subscriptions is None:
        raise InvalidParameterError("stream", "sources|subs", None)
    if subscriptions is None:
        assert listed is not None
        ids = source_ids(listed, names, "stream")
        return ids, sorted({partition for one in ids if (partition := names.physical_of(one)) is not None})
    wanted: set[int] = set()
    found: set[int] | None = set()
    listed_subscriptions = _json("stream", "subs", subscriptions)
    if not isinstance(listed_subscriptions, list):
        raise InvalidParameterError("stream", "subs", subscriptions)
    for one in listed_subscriptions:
        try:
            source = int(one["logicalPartition"]["source"]["id"])
            partition = int(one.get("physicalPartition", {}).get("id", -1))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InvalidParameterError("stream", "subs", subscriptions) from None
        wanted |= set(partitions) if partition < 0 else {partition}
        found = None if source < 0 or found is None else found | {source}
    if not wanted or not wanted <= set(partitions):
        raise InvalidParameterError("stream", "subs", subscriptions)
    return None if found is None else sorted(found), sorted(wanted)


def _places(parameters: Mapping[str, str], wanted: Sequence[int]) -> dict[int, Place]:
    text, several = parameters.get("checkPoint"), parameters.get("checkPointMult")
    if several is not None:
        return _several(several, wanted)
    try:
        place = Place(-1) if text is None else place_of(_json("stream", "checkPoint", text))
    except ValueError:
        raise InvalidParameterError("stream", "checkPoint", text) from None
    return dict.fromkeys(wanted, place)


def _several(text: str, wanted: Sequence[int]) -> dict[int, Place]:
    """A JSON object, partition → checkpoint, perhaps with ``cursorPartition``; names and values are JSON again."""
    places = dict.fromkeys(wanted, Place(-1))
    first = None
    try:
        for name, value in _json("stream", "checkPointMult", text).items():
            if name == "cursorPartition":
                first = int(json.loads(value)["id"])
            else:
                places[int(json.loads(name)["id"])] = place_of(json.loads(value))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidParameterError("stream", "checkPointMult", text) from None
    order = sorted(wanted, key=lambda one: (first is not None and one < first, one))
    return {one: places[one] for one in order}
