"""``/groups/<name>``: the reports of the members of a consumer group (``_groups``).

It is for programs, by POST of JSON: a web page cannot send that to another host, because the preflight's answer does
not allow it. Each tenant has separate groups.
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

from headgate.databus import LARGEST_GROUP, PartitionReport, StreamPosition, checkpoint_json
from headgate.errors import ConfigError
from headgate.relay._groups import GroupFolder
from headgate.relay._http._commands import PRETTY, Command, body_of, object_of, reply
from headgate.relay._http._parameters import InvalidParameterError, segment
from headgate.relay._relay import Relay
from headgate.relay._tenants import Client, client_of

__all__ = ["commands"]

_NUMBER: Final = {"type": "integer"}
_BOOLEAN: Final = {"type": "boolean"}
_CHECKPOINT: Final = {"type": ["object", "null"]}


class _Report(BaseModel):
    """A member's report on one partition."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    generation: int = Field(ge=0, lt=2**63)
    checkpoint: dict[str, bool | int | str | None] | None = None
    release: bool = False


class _Sync(BaseModel):
    """The body that a member sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    member: str = Field(min_length=1, max_length=200)
    partitions: int = Field(ge=1, le=LARGEST_GROUP, strict=True)
    sources: list[str] = Field(default=[], max_length=10_000)
    lease_ms: int = Field(default=10_000, ge=100, le=600_000, strict=True)
    done: dict[int, _Report] = Field(default={}, max_length=LARGEST_GROUP)
    leave: bool = False
    bootstrap: bool = False


def commands(relay: Relay) -> list[Command]:
    """Return the commands to report to a group and to show it."""
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
            "Report as a member of a consumer group, and get the partitions that it owns",
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

    async def sync(self, request: Request, parameters: Mapping[str, Any]) -> Response:
        body = await _read(request)
        done = {
            number: PartitionReport(one.generation, one.checkpoint, one.release) for number, one in body.done.items()
        }
        try:
            client = client_of(request)
            start = self._start(body.sources, client)
            owned = await run_in_threadpool(
                self._of(client).sync,
                parameters["name"],
                body.member,
                sources=body.sources,
                partitions=body.partitions,
                lease_seconds=body.lease_ms / 1000,
                done=done,
                leave=body.leave,
                start=start,
                bootstrap=body.bootstrap,
            )
        except ConfigError as error:  # the request contradicts the group: the member must not retry it
            raise InvalidParameterError("groups", "name", str(error)) from None
        return reply(request, {"partitions": {str(number): one.to_json() for number, one in owned.items()}})

    async def show(self, request: Request, parameters: Mapping[str, Any]) -> Response:
        group = await run_in_threadpool(self._of(client_of(request)).show, parameters["name"])
        if group is None:
            raise InvalidParameterError("groups", "name", parameters["name"])
        return reply(request, group)

    def _of(self, client: Client) -> GroupFolder:
        if self._folder is None:
            raise ConfigError("this relay keeps no groups: give it a state folder, or groups = a folder")
        tenant = client.tenant
        folder = self._folder if tenant is None else self._folder / f"tenant-{quote(tenant.name, safe='')}"
        return self._folders.setdefault(folder, GroupFolder(folder))

    def _start(self, sources: list[str], client: Client) -> Mapping[str, Any] | None:
        """Return the checkpoint before everything in the buffer; None: the buffer never had anything."""
        names = self._relay.names
        client.check(sources)
        wanted = [one for one in names.all() if (not sources or one.name in sources) and client.may_read(one.name)]
        missing = set(sources) - {one.name for one in wanted}
        if missing:
            raise ConfigError(f"the relay has no source {min(missing)}")
        physical = {names.physical_of(one.id) for one in wanted} if wanted else set(self._relay.partitions)
        if len(physical) != 1:
            raise ConfigError("a group reads sources of one physical source: SCNs of several cannot be compared")
        (number,) = physical
        assert number is not None
        oldest_resumable = self._relay.partitions[number].buffer.oldest_resumable_scn
        return None if oldest_resumable < 0 else checkpoint_json(StreamPosition(oldest_resumable))


async def _read(request: Request) -> _Sync:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise InvalidParameterError("groups", "content-type", request.headers.get("content-type"))
    body = await body_of(request, "groups")
    try:
        return _Sync.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(one) for one in first["loc"])
        raise InvalidParameterError("groups", location or "body", first["msg"]) from None
