"""Who may ask a relay, for what, and how often; over TLS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Scope

from headgate.errors import ConfigError
from headgate.relay.client import Access, Consumer, Event, RelayClient
from headgate.relay.server import Gate, Tenant, load_relay
from headgate.web import Token
from headgate.web.serving import Serving
from tests.certificates import make_certificates
from tests.relay.server.rows import block, people
from tests.relay.server.serving import Answer, Served, served
from tests.relay.server.test_app import pets, refused

ALL, PETS = "all-of-it-0123456789", "pets-only-0123456789"
PET_NAME = "com.example.Pet"
TENANTS = (Tenant("operator", Token(ALL)), Tenant("kennel", Token(PETS), sources=("com.example.*",)))


@pytest.fixture
def relay() -> Iterator[Served]:
    with served(tenants=TENANTS) as one:
        one.put(block(people([1], ordinals=[0]), pets([7], ordinals=[1])))
        yield one


def test_every_request_needs_a_token(relay: Served) -> None:
    for path in ("sources", "stream", "admin/status", "nothing", "containerStats/inbound/events/total"):
        for token in (None, "wrong-0123456789-wrong", ALL[:-1], ALL + "x"):
            answer = relay.get(path, token=token)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="headgate"'), path
            assert answer.json["error"] == answer.headers["x-dbus-error"] == "Unauthorized"
    assert relay.get("sources", token=ALL).status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3:11115", "relay.example"])
@pytest.mark.parametrize("tenants", [(), TENANTS])
def test_probes_need_no_token_and_name_nothing(tenants: tuple[Tenant, ...], host: str) -> None:
    with served(tenants=tenants) as relay:
        headers = {"host": host}
        feeder = relay.relay.partitions[1].feeder
        assert relay.get("healthz", headers=headers)[::2] == (200, b"alive\n")
        assert relay.get("readyz", headers=headers)[::2] == (200, b"ready\n")
        feeder.problem = "or_test.person is odd"
        assert relay.get("readyz", headers=headers)[::2] == (503, b"not ready\n")
        assert relay.get("healthz", headers=headers)[::2] == (200, b"alive\n")
        assert relay.get("readyz", method="POST", headers=headers).status == 405


def forbidden(answer: Answer) -> None:
    assert (answer.status, answer.json["error"]) == (403, "Forbidden")
    assert "kennel" in answer.json["message"] or "some sources only" in answer.json["message"]


def test_a_tenant_reads_its_sources_only(relay: Served) -> None:
    parameters: dict[str, Any] = {"size": "100000", "output": "json", "token": PETS}
    what: dict[str, Any]
    assert relay.get("sources", token=PETS).json == [{"name": PET_NAME, "id": 41}]
    assert {one["id"] for one in relay.get("register", token=PETS).json} == {41}
    everything = [
        {"physicalPartition": {"id": -1}, "logicalPartition": {"source": {"id": one, "name": "*"}}} for one in (-1, 41)
    ]
    subscriptions: list[dict[str, Any]] = [{"subs": one} for one in (everything, everything[:1], everything[1:])]
    for what in ({"sources": "41"}, *subscriptions):
        answer = relay.get("stream", **parameters, **what)
        assert [json.loads(line)["srcId"] for line in answer.body.splitlines()] == [41, -2], what
    assert relay.get("physicalBuffers", token=PETS).json == {"person:1": [{"name": PET_NAME, "id": 41}]}
    theirs = [{"logicalPartition": {"source": {"id": 40}}}]
    for path, what in (
        ("stream", {"sources": "40,41"}), ("stream", {"subs": theirs}), ("register", {"sources": "40"}),
    ):  # fmt: skip
        forbidden(relay.get(path, **parameters, **what))
    for path in (
        "containerStats/inbound/events/total", "containerStats/x", "relayStats/outbound/http/clients",
        "physicalSources", "bufferInfo/inbound/person/1",
    ):  # fmt: skip
        forbidden(relay.get(path, token=PETS))
        assert relay.get(path, token=ALL).status == (500 if path.endswith("x") else 200)
    relay.relay.partitions[1].feeder.problem = "or_test.person is odd"
    assert relay.get("admin/status", token=PETS).json["message"] == "the relay's operator can see the reason"


def test_what_each_client_asked_for_is_counted(relay: Served) -> None:
    parameters: dict[str, Any] = {"sources": "41", "size": "100000", "output": "binary"}
    size = len(relay.get("stream", token=PETS, **parameters).body)
    relay.get("stream", token=PETS, **{**parameters, "size": "x"})
    relay.get("stream", token=PETS, **parameters, checkPoint={"windowScn": 5})
    relay.get("sources", token=ALL)
    relay.get("stream", token=ALL, **{**parameters, "sources": "40,41"}, checkPoint={"windowScn": (1 << 48) + 1})

    def of(path: str) -> Any:
        return relay.get(path, token=ALL).json

    events = of("containerStats/outbound/events/client/kennel")
    assert (events["numDataEvents"], events["numSysEvents"], events["dimension"]) == (1, 1, "kennel")
    assert events["sizeDataEvents"] + events["sizeSysEvents"] == size
    names = of("containerStats/outbound/events/clients")
    assert names == of("relayStats/outbound/http/clients") == ["kennel", "operator"]
    http = of("relayStats/outbound/http/client/kennel")
    assert (http["numStreamCalls"], http["numErrStream"], http["numErrStreamReq"]) == (3, 2, 1)
    assert (http["numScnNotFoundStream"], http["maxStreamWinScn"], http["minStreamWinScn"]) == (1, 5, 5)
    assert http["httpErrorRate"] == pytest.approx(2 / 3)
    total = of("relayStats/outbound/http/total")
    assert (total["numStreamCalls"], total["numSourcesCalls"], total["numPeers"]) == (4, 1, 2)
    assert total["maxStreamWinScn"] == (1 << 48) + 1
    assert of("relayStats/outbound/http/sources") == [40, 41]
    assert of("relayStats/outbound/http/source/41")["numStreamCalls"] == 3
    assert of("relayStats/outbound/http/source/40")["numStreamCalls"] == 1
    invalid = "com.linkedin.databus2.core.container.request.InvalidRequestParamValueException"
    for path in ("client/nobody", "source/99", "source/x", "x"):
        refused(relay.get(f"relayStats/outbound/http/{path}", token=ALL), invalid)
    refused(relay.get("containerStats/outbound/events/client/nobody", token=ALL), invalid)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Gated:
    """A gate before an application that answers as many bytes as asked, and waits if it is told to."""

    def __init__(self, **limits: Any) -> None:
        self.clock = Clock()
        self.hold, self.waiting = asyncio.Event(), asyncio.Semaphore(0)
        app = Starlette(routes=[Route("/{size:int}", self._answer), Route("/wait/{size:int}", self._wait)])
        self.gate = Gate(app, [Tenant("a", Token(ALL), **limits), Tenant("b", Token(PETS))], self.clock)

    async def _answer(self, request: Request) -> Response:
        return Response(b"x" * request.path_params["size"])

    async def _wait(self, request: Request) -> Response:
        self.waiting.release()
        await self.hold.wait()
        return await self._answer(request)

    async def get(self, path: str, token: str = ALL) -> tuple[int, str | None]:
        """Status and Retry-After."""
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope: Scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": headers, "client": ("127.0.0.1", 1), "root_path": "", "scheme": "http", "server": ("h", 1),
        }  # fmt: skip
        await self.gate(scope, receive, send)
        response_headers = dict(sent[0]["headers"])
        return sent[0]["status"], response_headers.get(b"retry-after", b"").decode() or None


def test_requests_a_second() -> None:
    async def steps() -> None:
        gated = Gated(requests_per_second=2)
        assert [(await gated.get("/1"))[0] for _ in range(3)] == [200, 200, 429]
        assert await gated.get("/1") == (429, "1")
        assert (await gated.get("/1", PETS))[0] == 200
        gated.clock.now += 0.5
        assert [(await gated.get("/1"))[0] for _ in range(2)] == [200, 429]
        gated.clock.now += 1000
        assert [(await gated.get("/1"))[0] for _ in range(3)] == [200, 200, 429]
        slow = Gated(requests_per_second=0.1)
        assert [await slow.get("/1") for _ in range(2)] == [(200, None), (429, "10")]

    asyncio.run(steps())


def test_bytes_a_second() -> None:
    async def steps() -> None:
        gated = Gated(bytes_per_second=1000)
        assert await gated.get("/6000") == (200, None)
        assert await gated.get("/1") == (429, "5")
        gated.clock.now += 4.5
        assert await gated.get("/1") == (429, "1")
        gated.clock.now += 0.5
        assert await gated.get("/1") == (200, None)
        assert (await gated.get("/100000", PETS))[0] == 200

    asyncio.run(steps())


def test_requests_at_a_time() -> None:
    async def steps() -> None:
        gated = Gated(concurrent=2)
        waiting = [asyncio.create_task(gated.get("/wait/1")) for _ in range(2)]
        for _ in waiting:
            await gated.waiting.acquire()
        assert await gated.get("/1") == (429, "1")
        assert await gated.get("/1", PETS) == (200, None)
        gated.hold.set()
        assert await asyncio.gather(*waiting) == [(200, None)] * 2
        assert await gated.get("/1") == (200, None)

    asyncio.run(steps())


def test_an_answer_without_an_end_goes_on_no_faster() -> None:
    async def chunks() -> Any:
        for _ in range(3):
            yield b"x" * 500

    async def endless(request: Request) -> Response:
        del request
        return StreamingResponse(chunks())

    pauses = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        gated.clock.now += seconds

    gated = Gated(bytes_per_second=100)
    gated.gate._app = Starlette(routes=[Route("/", endless)])
    gated.gate._pause = pause
    assert asyncio.run(gated.get("/")) == (200, None)
    assert pauses == [pytest.approx(4), pytest.approx(5), pytest.approx(5)]


TOML = """
tls_cert = "cert.pem"
[[physical]]
id = 1
name = "p"
url = "mysql://root@127.0.0.1:1"
[[physical.sources]]
id = 40
name = "a.B"
table = "a.b"
"""
TENANT = '[[tenants]]\nname = "a"\n'


def test_tenants_in_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "relay.toml"
    (tmp_path / "token").write_text(f"{ALL}\n")
    monkeypatch.setenv("PETS_TOKEN", PETS)
    file.write_text(
        f'{TOML}{TENANT}token_file = "token"\nconcurrent = 3\nrequests_per_second = 0.5\nbytes_per_second = 1000000\n'
        '[[tenants]]\nname = "b"\ntoken_env = "PETS_TOKEN"\nsources = ["a.*"]\n'
    )
    config = load_relay([file])
    assert (config.tls_cert, config.tls_key) == (tmp_path / "cert.pem", None)
    first, second = config.tenants
    limits = (first.sources, first.concurrent, first.requests_per_second, first.bytes_per_second)
    assert (first.token.equals(ALL), *limits) == (True, None, 3, 0.5, 1_000_000)
    assert (second.token.equals(PETS), second.sources) == (True, ("a.*",))
    assert ALL not in repr(config)
    for wrong, message in (
        (TENANT, "either token_file or token_env"),
        (f'{TENANT}token_env = "NOT_SET"', "NOT_SET is not set"),
        (f'{TENANT}token_env = "pets-token"', "token_env: expected the name of an environment variable, not its value"),
        (f'{TENANT}token_env = "PETS_TOKEN"\ntoken_file = "token"', "needs either token_file or token_env"),
        (
            f'{TENANT}token_file = "token"\nconcurrent = 0',
            r"tenants\[0\]\.concurrent: expected a number greater than 0",
        ),
        (f'{TENANT}token_file = "token"\nspeed = 0', "speed"),
        (f'{TENANT}token_file = "token"\n' * 2, "tenant a is used twice"),
        ('[[tenants]]\nname = ""\ntoken_file = "token"', "not a tenant name"),
        (f'[[tenants]]\nname = "{"名" * 23}"\ntoken_file = "token"', "not a tenant name"),
    ):
        file.write_text(TOML + wrong)
        with pytest.raises(ConfigError, match=message):
            load_relay([file])
    file.write_text(TOML.replace("tls_cert", "tls_key"))
    with pytest.raises(ConfigError, match="tls_key is set, but tls_cert is not"):
        load_relay([file])


def test_a_client_with_a_token_over_tls(relay: Served, tmp_path: Path) -> None:
    authority, certificate, key = map(Path, make_certificates(tmp_path))
    app = relay.app
    events: list[Event] = []

    class Taker(Consumer):
        def on_data_event(self, event: Event) -> None:
            events.append(event)

        def on_checkpoint(self, scn: int) -> None:
            del scn
            client.stop()

    with Serving(app, "127.0.0.1", 0, tls=(certificate, key)) as serving:
        assert serving.url.startswith("https://127.0.0.1:")
        client = RelayClient(serving.url, [PET_NAME], Taker(), access=Access(PETS, authority))
        client.run()
        assert [one.source for one in events] == [PET_NAME]
        client = RelayClient(serving.url, [PET_NAME], Taker(), access=Access(PETS))
        with pytest.raises(ConfigError, match=r"certificate of the relay .* cannot be verified .*: ca_file names"):
            client.run()
        client = RelayClient(serving.url, [], Taker(), access=Access("wrong-0123456789", authority))
        with pytest.raises(ConfigError, match="a token is needed"):
            client.run()
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    with Serving(app, "127.0.0.1", 0, tls=(both, None)):
        pass
    for wrong in ((certificate, None), (tmp_path / "none", None), (certificate, authority)):
        with pytest.raises(ConfigError, match="cannot be used"):
            Serving(app, "127.0.0.1", 0, tls=wrong)
