"""``/groups/<name>``: the reports of the members of a consumer group (``_groups``).

It is for programs, by POST of JSON. Each tenant has separate groups.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from headgate.relay.databus import FIRST, MEMBER_REPORT, OWNED, MemberReport, StreamPosition, checkpoint_json
from headgate.relay.server._groups import GroupFolder, GroupRefusedError
from headgate.relay.server._http._commands import Command, body_of, reply
from headgate.relay.server._http._parameters import InvalidParameterError, Parameters
from headgate.relay.server._relay import Relay
from headgate.relay.server._tenants import Client, client_of

__all__ = ["commands"]


class _Named(Parameters):
    name: str


def commands(relay: Relay) -> list[Command]:
    """Return the commands to report to a group and to show it."""
    groups = _Groups(relay)
    return [
        Command("/groups/{name}", groups.sync, _Named, for_all=True, methods=("POST",)),
        Command("/groups/{name}", groups.show, _Named, for_all=True),
    ]


class _Groups:
    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._folder = relay.config.groups or (None if relay.config.state is None else relay.config.state / "groups")
        self._folders: dict[Path, GroupFolder] = {}

    async def sync(self, request: Request, parameters: _Named) -> Response:
        report, client = await _read(request), client_of(request)
        with _refused():
            folder, start = self._of(client), self._start(report.sources, client)
            owned = await run_in_threadpool(folder.sync, parameters.name, report, start)
        return reply(request, {"partitions": OWNED.dump_python(owned, mode="json")})

    async def show(self, request: Request, parameters: _Named) -> Response:
        with _refused():
            group = await run_in_threadpool(self._of(client_of(request)).show, parameters.name)
        if group is None:
            raise InvalidParameterError("groups", "name", parameters.name)
        return reply(request, group)

    def _of(self, client: Client) -> GroupFolder:
        if self._folder is None:
            raise GroupRefusedError("this relay keeps no groups: give it a state folder, or groups = a folder")
        tenant = client.tenant
        folder = self._folder if tenant is None else self._folder / f"tenant-{quote(tenant.name, safe='')}"
        return self._folders.setdefault(folder, GroupFolder(folder, limits=self._relay.config.limits.groups))

    def _start(self, sources: Sequence[str], client: Client) -> Mapping[str, Any]:
        """Return the checkpoint before everything in the buffer, also if that is still to come."""
        names = self._relay.names
        client.check(sources)
        wanted = [one for one in names.all() if (not sources or one.name in sources) and client.may_read(one.name)]
        missing = set(sources) - {one.name for one in wanted}
        if missing:
            raise GroupRefusedError(f"the relay has no source {min(missing)}")
        physical = {names.physical_of(one.id) for one in wanted} if wanted else set(self._relay.partitions)
        if len(physical) != 1:
            raise GroupRefusedError("a group reads sources of one physical source: SCNs of several cannot be compared")
        (number,) = physical
        oldest_resumable = self._relay.partitions[number].buffer.oldest_resumable_scn
        return checkpoint_json(FIRST if oldest_resumable < 0 else StreamPosition(oldest_resumable))


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Convert refusals in this block, after which a member ends; after any other error, as of a full disk, it retries.

    :raises InvalidParameterError: the request contradicts the group, or exceeds a limit.
    """
    try:
        yield
    except GroupRefusedError as error:
        raise InvalidParameterError("groups", "name", str(error)) from None


async def _read(request: Request) -> MemberReport:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise InvalidParameterError("groups", "content-type", request.headers.get("content-type"))
    body = await body_of(request, "groups")
    try:
        return MEMBER_REPORT.validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(one) for one in first["loc"])
        raise InvalidParameterError("groups", location or "body", first["msg"]) from None
