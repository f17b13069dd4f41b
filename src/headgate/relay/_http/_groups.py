"""``/groups/<name>``: where the members of a group of consumers report (``_groups``).

It is for programs, by POST of JSON: a page in somebody's browser cannot send that to another host without asking
first, and it gets no leave. Each tenant has groups of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from headgate.databus import LARGEST_GROUP, Done, Place, checkpoint_json
from headgate.errors import ConfigError
from headgate.relay._groups import GroupFolder
from headgate.relay._http._commands import PRETTY, Command, object_of, reply
from headgate.relay._http._parameters import InvalidParameterError, segment
from headgate.relay._relay import Relay
from headgate.relay._tenants import Client, client_of

__all__ = ["commands"]

_LARGEST_BODY: Final = 4 << 20
"""Of reports; the largest group's checkpoints are a tenth of it."""
_NUMBER: Final = {"type": "integer"}
_BOOLEAN: Final = {"type": "boolean"}
_CHECKPOINT: Final = {"type": ["object", "null"]}


class _Report(BaseModel):
    """Of one partition."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    generation: int = Field(ge=0, lt=2**63)
    checkpoint: dict[str, bool | int | str | None] | None = None
    release: bool = False


class _Sync(BaseModel):
    """What a member sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member: str = Field(min_length=1, max_length=200)
    partitions: int = Field(ge=1, le=LARGEST_GROUP, strict=True)
    sources: list[str] = Field(default=[], max_length=10_000)
    lease_ms: int = Field(default=10_000, ge=100, le=600_000, strict=True)
    done: dict[int, _Report] = Field(default={}, max_length=LARGEST_GROUP)
    leave: bool = False
    bootstrap: bool = False


def commands(relay: Relay) -> list[Command]:
    """To report and to look."""
    groups = _Groups(relay)
    name = segment("name", "The group's name: letters, digits, '.', '_' and '-'.")
    owned = object_of(generation=_NUMBER, checkpoint=_CHECKPOINT, back=_BOOLEAN, bootstrap=_BOOLEAN)
    whole = object_of(
        v=_NUMBER,
        sources={"type": "array"},
        bootstrap=_BOOLEAN,
        members={"type": "object"},
        partitions={"type": "array"},
    )
    return [
        Command(
            "/groups/{name}",
            groups.sync,
            "A member of a group of consumers reports, and is told what it owns",
            [name],
            object_of(partitions={"type": "object", "additionalProperties": owned}),
            body=_Sync.model_json_schema(),
            for_all=True,
        ),
        Command(
            "/groups/{name}",
            groups.show,
            "The members, partitions and checkpoints of a group of consumers",
            [name, PRETTY],
            whole,
            for_all=True,
        ),
    ]


class _Groups:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._folder = relay.config.groups or (None if relay.config.state is None else relay.config.state / "groups")
        self._folders: dict[Path, GroupFolder] = {}

    async def sync(self, request: Request, given: Mapping[str, Any]) -> Response:
        asked = await _read(request)
        done = {number: Done(one.generation, one.checkpoint, one.release) for number, one in asked.done.items()}
        try:
            client = client_of(request)
            start = self._start(asked.sources, client)
            found = await run_in_threadpool(
                self._of(client).sync,
                given["name"],
                asked.member,
                sources=asked.sources,
                partitions=asked.partitions,
                lease_seconds=asked.lease_ms / 1000,
                done=done,
                leave=asked.leave,
                start=start,
                bootstrap=asked.bootstrap,
            )
        except ConfigError as error:  # what the member asks for cannot be: it is not to try again
            raise InvalidParameterError("groups", "name", str(error)) from None
        return reply(request, {"partitions": {str(number): one.to_json() for number, one in found.items()}})

    async def show(self, request: Request, given: Mapping[str, Any]) -> Response:
        found = await run_in_threadpool(self._of(client_of(request)).show, given["name"])
        if found is None:
            raise InvalidParameterError("groups", "name", given["name"])
        return reply(request, found)

    def _of(self, client: Client) -> GroupFolder:
        if self._folder is None:
            raise ConfigError("this relay keeps no groups: give it a state folder, or groups = a folder")
        tenant = client.tenant
        folder = self._folder if tenant is None else self._folder / f"tenant-{quote(tenant.name, safe='')}"
        return self._folders.setdefault(folder, GroupFolder(folder))

    def _start(self, sources: list[str], client: Client) -> Mapping[str, Any] | None:
        """The place before all that the buffer holds; None: nothing was ever in it."""
        names = self._relay.names
        client.check(sources)
        wanted = [one for one in names.all() if (not sources or one.name in sources) and client.may_read(one.name)]
        missing = set(sources) - {one.name for one in wanted}
        if missing:
            raise ConfigError(f"the relay has no source {min(missing)}")
        physical = {names.physical_of(one.id) for one in wanted} if wanted else set(self._relay.partitions)
        if len(physical) != 1:
            raise ConfigError("a group reads sources of one physical source, because each has SCNs of its own")
        (number,) = physical
        assert number is not None
        prev = self._relay.partitions[number].buffer.prev_scn
        return None if prev < 0 else checkpoint_json(Place(prev))


async def _read(request: Request) -> _Sync:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise InvalidParameterError("groups", "content-type", request.headers.get("content-type"))
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_BODY:
            raise InvalidParameterError("groups", "body", f"more than {_LARGEST_BODY} bytes")
    try:
        return _Sync.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(one) for one in first["loc"])
        raise InvalidParameterError("groups", place or "body", first["msg"]) from None
