"""Every answer as a whole, in both versions of events, against what is written down in ``golden/``.

Those files were looked through by hand against Databus's sources when they were made; ``HEADGATE_GOLDEN=write`` makes
them again, for the next look. Events are in hex, one a line; what depends on the clock is ``…``. Their checksums are
computed here in another way, too.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import Answer, Served, served
from tests.relay.server.test_app import GENERATION, pets

FOLDER = Path(__file__).parent / "golden"
ALL = "sources=40,41&size=100000"
POINT = '{"windowScn":%d,"windowOffset":%d}'
REQUESTS = (
    "sources", "sources?v=2", "sources?pretty", "register?sources=41", "register?sources=41&protocolVersion=4",
    "physicalSources", "physicalBuffers", "bufferInfo/inbound/person/1", "admin", "admin/status?pretty",
    f"stream?{ALL}&output=binary&maxev=2", f"stream?{ALL}&output=binary", f"stream?{ALL}&output=json&maxev=2",
    "stream?sources=41&size=100000&output=json_plain_value", f"stream?{ALL}&output=rows",
    f"stream?{ALL}&output=json&checkPoint={quote(POINT % (GENERATION + 2, 1))}",
    f"stream?{ALL}&output=binary&checkPoint={quote(POINT % (GENERATION + 3, -1))}",
    "stream?sources=40&size=9&output=json", f"stream?{ALL}&output=json&checkPoint={quote(POINT % (5, -1))}",
    "stream?sources=42&size=9&output=json", "stream?sources=40&output=json", "nothing/such?a=b",
    "bufferInfo/inbound/person/7", "containerStats/x", "relayStats/x",
    "containerStats/inbound/events/total?pretty", "containerStats/outbound/events/total",
    "containerStats/inbound/events/sources", "containerStats/inbound/events/source/41",
    "containerStats/inbound/events/psources", "containerStats/inbound/events/psource/person:1",
    "containerStats/outbound/events/sources", "containerStats/outbound/events/source/41",
    "containerStats/outbound/events/psource/person", "containerStats/outbound/events/clients",
    "containerStats/outbound/events/client/127.0.0.1", "containerStats/inbound/total",
    "containerStats/container?pretty", "relayStats/outbound/http/total",
    "relayStats/outbound/http/sources", "relayStats/outbound/http/source/40", "relayStats/outbound/http/clients",
    "relayStats/outbound/http/client/127.0.0.1",
)  # fmt: skip
UNTOLD = {"date", "content-length", "x-dbus-server-host"}
CLOCK = re.compile(rb'("(?:timeSince\w+|timestampLastResetMs|timeLag|latency\w+)" ?: ?)[0-9.]+')


def crc(data: bytes) -> bytes:
    """A register that begins at 0 and is not inverted at the end, by a library's that does both."""
    return (zlib.crc32(data, 0xFFFFFFFF) ^ 0xFFFFFFFF).to_bytes(4, "big")


def events(data: bytes) -> Iterator[bytes]:
    """One by one, their checksums checked."""
    while data:
        first = data[0] == 0
        size = int.from_bytes(data[5:9] if first else data[17:21], "big")
        event, data = data[:size], data[size:]
        if first:
            end = 57 if event[10] & 8 else 61
            assert (event[1:5], event[49:53]) == (crc(event[5:end]), crc(event[end:]))
        else:
            end = int.from_bytes(event[5:9], "big")
            assert (event[9:13], event[13:17]) == (crc(event[13:end]), crc(event[end:]))
        yield event


def shown(request: str, answer: Answer) -> str:
    headers = [f"{name}: {value}" for name, value in sorted(answer.headers.items()) if name not in UNTOLD]
    if "output=binary" in request and answer.status == 200:
        body = "\n".join(event.hex() for event in events(answer.body))
    else:
        body = CLOCK.sub(lambda match: match[1] + "…".encode(), answer.body).decode().replace("\r\n", "\\r\\n")
    return "\n".join([f"GET /{request}", str(answer.status), *headers, "", body.rstrip("\n"), ""])


def fill(relay: Served) -> None:
    """Two persons; a pet and a person; a person deleted and another under a new key."""
    relay.put(
        block(people([1, 2])),
        block(
            pets([7], gtids=[f"{UUID}:2"], pos=[300], ordinals=[0]),
            people([3], gtids=[f"{UUID}:2"], pos=[350], ordinals=[1]),
        ),
        block(people([1, 2, 9], ops="dbu", gtids=[f"{UUID}:3"] * 3, pos=[400] * 3, ordinals=[0, 1, 1])),
    )


@pytest.mark.parametrize("version", [1, 2])
def test_every_answer_is_as_written_down(version: int) -> None:
    with served(event_version=version) as relay:
        fill(relay)
        text = "\n".join(shown(one, relay.get(one)) for one in REQUESTS)
    file = FOLDER / f"events-{version}.txt"
    if os.environ.get("HEADGATE_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")
