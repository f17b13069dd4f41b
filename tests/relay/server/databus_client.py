"""Databus's Java client as a relay sees it: its requests, in its order, and what it makes of the answers.

Written from its sources: ``AbstractNettyHttpConnection.java`` (headers), ``NettyHttpDatabusRelayConnection.java`` and
``NettyHttpDatabusBootstrapConnection.java`` (requests), ``RelayPullThread.java`` and ``BootstrapPullThread.java``
(their order), ``RemoteExceptionHandler.java`` (errors), ``ServerInfo.java``, ``Checkpoint.java``,
``DispatcherState.java`` and ``VersionedSchemaSet.java`` (which schemas it keeps). The bytes of a request are those that
Netty 3.2.4 makes of it.
Nothing of this was recorded from the client itself.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import http.client
import io
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastavro
import numpy as np

from headgate.relay.databus import CHECKPOINT_SOURCE, EventFields, avro_text, event_fields
from headgate_testing import wait_until
from tests.relay.server.serving import PATIENCE_SECONDS

EOP: Final = -2
SCN_NOT_FOUND: Final = "com.linkedin.databus.core.ScnNotFoundException"
_WHOLE_BODY: Final = 8192
"""A longer body with a length comes from Netty in pieces, while the client takes the first one for all of it."""

_PAUSE_SECONDS: Final = 0.01


class FailedError(Exception):
    """The client ends its connection, and picks a server again."""


class SuspendedError(Exception):
    """The client stops for good."""


class Reply(NamedTuple):
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> str | None:
        """The client never looks at the status."""
        return self.headers.get("x-dbus-error-cause") or self.headers.get("x-dbus-error")


class Change(NamedTuple):
    scn: int
    source: int
    opcode: str
    key: int | bytes
    row: dict[str, Any]
    before: dict[str, Any] | None


class Connection:
    """One connection, kept as long as the server keeps it.

    :param heard: filled with each request's URI and its answer.
    """

    def __init__(self, port: int, host: str, heard: list[tuple[bytes, Reply]]) -> None:
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        except OSError as error:
            raise FailedError(repr(error)) from None
        self._host, self._heard, self.is_open = host, heard, True

    @property
    def address(self) -> tuple[str, int]:
        """The server's."""
        peer: tuple[str, int] = self._socket.getpeername()
        return peer

    def ask(self, uri: str) -> Reply:
        """:raises FailedError: the connection has ended, or the body is not what the client can read."""
        if not self.is_open:
            raise FailedError("the channel is closed")
        request = (
            f"GET {uri} HTTP/1.1\r\nHost: {self._host}\r\nConnection: keep-alive\r\nAccept-Encoding: gzip\r\n"
            "x-dbus-client-host: h\r\nx-dbus-client-service: UNKNOWN\r\n\r\n"
        ).encode()
        answer = http.client.HTTPResponse(self._socket)
        try:
            self._socket.sendall(request)
            answer.begin()
            reply = Reply({name.lower(): value for name, value in answer.getheaders()}, answer.read())
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise FailedError(repr(error)) from None
        if answer.will_close:
            self.close()
        self._heard.append((request, reply))
        in_pieces = (
            uri.startswith(("/stream", "/bootstrap")) and int(reply.headers.get("content-length", 0)) > _WHOLE_BODY
        )
        if in_pieces:
            raise FailedError("the body's end is not where the client takes it to be")
        return reply

    def is_idle(self, seconds: float) -> bool:
        """Whether it is still open so long after the last answer."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(1) != b""
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(PATIENCE_SECONDS)

    def close(self) -> None:
        self.is_open = False
        self._socket.close()


class Schemas:
    """By id, and of metadata by version; what a version of a name is, is not learned again."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()
        self._of_id: dict[bytes, Any] = {}
        self._of_metadata: dict[int, tuple[bytes, Any]] = {}

    def keep(self, names: Mapping[int, str], entries: Sequence[Mapping[str, Any]], metadata: Sequence[Any]) -> None:
        for one in entries:
            place = (names[one["id"]], one["version"])
            if place not in self._known:
                self._known.add(place)
                value = json.loads(one["schema"])
                self._of_id[hashlib.md5(avro_text(value).encode()).digest()] = fastavro.parse_schema(value)
        for one in metadata:
            parsed = fastavro.parse_schema(json.loads(one["schema"]))
            self._of_metadata.setdefault(one["version"], (base64.b64decode(one["crc32"]), parsed))

    def row(self, digest: bytes, data: bytes) -> dict[str, Any]:
        """Its consumer gets null for a schema that it does not know, for ever."""
        assert digest in self._of_id, "an event by a schema that this client was not told of"
        return _read(data, self._of_id[digest])

    def metadata(self, digest: bytes, version: int, data: bytes) -> dict[str, Any]:
        of, parsed = self._of_metadata[version]
        assert of == digest
        return _read(data, parsed)


def _read(data: bytes, schema: Any) -> dict[str, Any]:
    source = io.BytesIO(data)
    row = fastavro.schemaless_reader(source, schema, None)
    assert source.read() == b""
    assert isinstance(row, dict)
    return row


class DatabusClient:
    """One stream of some sources.

    :param filters: by source id, as it sends them with ``/stream``.
    :param newest: 2: it understands events of version 2.
    :param bootstrap: whether it has a bootstrap service, at the same port.
    :param checkpoint: that it kept.
    """

    def __init__(
        self, port: int, sources: Sequence[str], *, size: int = 100_000,
        filters: Mapping[str, Any] | None = None, newest: int = 0, bootstrap: bool = False,
        checkpoint: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.port, self._sources, self._size = port, sources, size
        self.host = f"localhost/127.0.0.1:{port}"
        """As Java prints an address whose name it looked up."""
        self._filters, self._newest, self._bootstraps = filters, newest, bootstrap
        self.checkpoint = dict(checkpoint) if checkpoint else self._beginning()
        self._flexible = not bootstrap and not checkpoint
        self.heard: list[tuple[bytes, Reply]] = []
        self.connections = 0
        self.windows: list[tuple[int, list[Change]]] = []
        self.bootstrapped: list[Change] = []
        self.connection: Connection | None = None
        self._ids: dict[str, int] = {}
        self._schemas = Schemas()
        self._window: list[Change] = []

    def _beginning(self) -> dict[str, Any]:
        """Of a new consumer: 0 is an SCN that no relay has, which leads to the bootstrap; -1 is the oldest there is."""
        return {
            "windowOffset": -1, "snapshot_offset": -1, "prevScn": -1, "windowScn": 0 if self._bootstraps else -1,
            "consumption_mode": "ONLINE_CONSUMPTION",
        }  # fmt: skip

    @property
    def _listed(self) -> str:
        return ",".join(str(self._ids[name]) for name in self._sources)

    def connect(self) -> Connection:
        """A new connection, on which it registers once."""
        self.close()
        self.connection = connection = Connection(self.port, self.host, self.heard)
        self.connections += 1
        self._ids = {one["name"]: one["id"] for one in self._json(connection, "/sources?protocolVersion=2")}
        registered = self._json(connection, f"/register?protocolVersion=2&sources={self._listed}&compress=true")
        protocol = int(self.heard[-1][1].headers["x-dbus-protocol-version"])
        entries = registered["sourceSchemas"] if protocol >= 4 else registered
        metadata = registered.get("metadataSchemas", []) if protocol >= 4 else []
        if len({one["id"] for one in entries}) < len(self._sources):
            raise FailedError("a source has no schema yet")
        self._schemas.keep({number: name for name, number in self._ids.items()}, entries, metadata)
        if self.checkpoint["windowOffset"] > 0:
            self._regress()
        return connection

    def _regress(self) -> None:
        """A new connection in the middle of a window: it begins that one again."""
        if self.checkpoint["prevScn"] <= 0 and not self._flexible:
            raise SuspendedError("the checkpoint has no prevScn")
        self.checkpoint |= {"windowScn": max(self.checkpoint["prevScn"], -1), "windowOffset": -1}
        self._window.clear()

    def _json(self, connection: Connection, uri: str) -> Any:
        reply = connection.ask(uri)
        if reply.error:
            raise FailedError(reply.error)
        text = reply.body
        if "compress=true" in uri:
            text = gzip.decompress(base64.b64decode(text))
        return json.loads(text)

    def pull(self) -> int:
        """One request for events; how many changes came. What fails has it connect again next time.

        :raises FailedError: something failed.
        :raises SuspendedError: it stops for good.
        """
        try:
            return self._pull(self.connection or self.connect())
        except FailedError:
            self.close()
            raise

    def _pull(self, connection: Connection) -> int:
        reply = connection.ask(
            f"/stream?protocolVersion=2&sources={self._listed}&streamFromLatestScn=false&checkPoint="
            f"{_text(self.checkpoint)}&output=binary&size={self._size}"
            + (f"&filters={_text(self._filters)}" if self._filters else "")
            + (f"&maxev={self._newest}" if self._newest else "")
        )
        if reply.error == SCN_NOT_FOUND and self._bootstraps:
            self.close()
            self.checkpoint = Bootstrap(self).run()
            return 0
        if reply.error:
            raise FailedError(reply.error)
        fields = event_fields(np.frombuffer(reply.body, np.uint8))
        for n, source in enumerate(fields.source.tolist()):
            self._take(source, int(fields.scn[n]), self.change(reply.body, fields, n) if source > 0 else None)
        return int((fields.source > 0).sum())

    def _take(self, source: int, scn: int, change: Change | None) -> None:
        at = self.checkpoint
        if change is not None:
            begun = at["windowOffset"] > 0
            if not begun:
                at["prevScn"] = at["windowScn"]
            at |= {"windowScn": scn, "windowOffset": at["windowOffset"] + 1 if begun else 1}
            self._window.append(change)
        elif source == EOP:
            at |= {"windowScn": scn, "windowOffset": -1, "prevScn": scn}
            self.windows.append((scn, self._window[:]))
            self._window.clear()
            self._flexible = False

    def change(self, body: bytes, fields: EventFields, n: int) -> Change:
        """A data event, decoded."""
        f = {name: int(column[n]) for name, column in fields._asdict().items()}
        row = self._schemas.row(body[f["digest"] : f["digest"] + 16], body[f["value"] : f["value"] + f["value_size"]])
        before = None
        if f["before"] >= 0:
            data = body[f["before"] : f["before"] + f["before_size"]]
            before = self._schemas.metadata(body[f["before"] - 16 : f["before"]], f["before_version"], data)
        key: int | bytes = f["long_key"] if f["key"] < 0 else body[f["key"] : f["key"] + f["key_size"]]
        return Change(f["scn"], f["source"], "DELETE" if f["attributes"] & 2 else "UPSERT", key, row, before)

    def until(self, windows: int) -> list[tuple[int, list[Change]]]:
        """Pull until there are so many windows; what fails is tried again. It pauses where nothing came."""
        failed: FailedError | None = None

        def has_come() -> bool:
            nonlocal failed
            try:
                while len(self.windows) < windows and self.pull():
                    pass
            except FailedError as error:
                failed = error
            return len(self.windows) >= windows

        wait_until(
            has_come,
            lambda: f"{len(self.windows)} of {windows} windows; the last failure: {failed}",
            seconds=PATIENCE_SECONDS,
            every=_PAUSE_SECONDS,
        )
        return self.windows

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Bootstrap:
    """What the client does when the relay does not hold what it wants: all rows of a source, then the changes of all
    sources so far, source by source, each time from the start.
    """

    def __init__(self, client: DatabusClient) -> None:
        self._client = client
        self._names: Sequence[str] = client._sources
        self._connection = Connection(client.port, client.host, client.heard)
        self._server: tuple[str, int] | None = None
        self._at: dict[str, Any] = {
            "consumption_mode": "BOOTSTRAP_SNAPSHOT", "bootstrap_since_scn": 0, "bootstrap_start_scn": -1,
            "bootstrap_target_scn": -1, "bootstrap_snapshot_source_index": 0, "bootstrap_catchup_source_index": 0,
            "snapshot_source": self._names[0], "catchup_source": self._names[0], "snapshot_offset": 0, "windowScn": -1,
            "windowOffset": -1, "prevScn": -1,
        }  # fmt: skip

    def run(self) -> dict[str, Any]:
        """The checkpoint to go on with in the stream."""
        listed = ",".join(self._names)
        start = int(self._ask(f"/startSCN?sources={listed}&checkPoint={_text(self._at)}"))
        self._at["bootstrap_start_scn"] = start
        for index, name in enumerate(self._names):
            self._at |= {
                "consumption_mode": "BOOTSTRAP_SNAPSHOT", "snapshot_source": name, "snapshot_offset": 0,
                "bootstrap_snapshot_source_index": index,
            }  # fmt: skip
            self._read()
            self._at["snapshot_offset"] = -1
            target = int(self._ask(f"/targetSCN?source={name}&checkPoint={_text(self._at)}"))
            self._at |= {
                "bootstrap_target_scn": target, "consumption_mode": "BOOTSTRAP_CATCHUP",
                "bootstrap_snapshot_source_index": index + 1,
            }  # fmt: skip
            for number, caught in enumerate(self._names[: index + 1]):
                self._at |= {
                    "catchup_source": caught, "bootstrap_catchup_source_index": number, "windowScn": start,
                    "windowOffset": 0,
                }  # fmt: skip
                self._read()
        self._connection.close()
        return {
            "windowOffset": -1, "snapshot_offset": -1, "prevScn": -1, "windowScn": self._at["bootstrap_target_scn"],
            "consumption_mode": "ONLINE_CONSUMPTION",
        }  # fmt: skip

    def _ask(self, uri: str) -> Any:
        reply = self._connection.ask(uri)
        if reply.error:
            raise FailedError(reply.error)
        self._check(reply)
        return json.loads(reply.body)

    def _check(self, reply: Reply) -> None:
        """It looks the server's name up, which is a name and a port, and goes on only if that stays the same."""
        name, port = reply.headers["x-dbus2-bs-hostport"].split(":")
        server = (socket.gethostbyname(name), int(port))
        assert server == (self._server or self._connection.address)
        self._server = server

    def _read(self) -> None:
        """One phase of one source."""
        client = self._client
        while True:
            reply = self._connection.ask(
                f"/bootstrap?sources={client._listed}&checkPoint={_text(self._at)}&output=binary&batchSize={client._size}"
            )
            if reply.error:
                raise FailedError(reply.error)
            self._check(reply)
            fields = event_fields(np.frombuffer(reply.body, np.uint8))
            for n, source in enumerate(fields.source.tolist()):
                if source == CHECKPOINT_SOURCE:
                    value = int(fields.value[n])
                    self._at = json.loads(reply.body[value : value + int(fields.value_size[n])])
                elif source > 0:
                    client.bootstrapped.append(client.change(reply.body, fields, n))
            if reply.headers.get("phasecompleted") == "TRUE":
                return


def _text(value: Any) -> str:
    """As Jackson prints it; nothing is encoded for the URI."""
    return json.dumps(value, separators=(",", ":"))
