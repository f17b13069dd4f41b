"""The relay against its own description: it is whole, and requests made of it are answered as it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headgate.relay import Tenant
from headgate.web import Token
from tests.relay.rows import UUID, block, people
from tests.relay.serving import PATIENCE_SECONDS, Served, served
from tests.relay.test_app import pets

TOKEN = "0123456789abcdef-operator"


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Served]:
    with served(tenants=[Tenant("operator", Token(TOKEN))], state=tmp_path) as one:
        one.put(block(people([1, 2])), block(pets([7], gtids=[f"{UUID}:2"], pos=[300])))
        yield one


def test_the_description_has_every_command_and_its_parameters(relay: Served) -> None:
    answer = relay.get("openapi.json", token=TOKEN)
    assert answer.headers["content-type"] == "application/json"
    paths = answer.json["paths"]
    assert {
        "/sources", "/register", "/stream", "/admin", "/admin/status", "/physicalSources", "/physicalBuffers",
        "/bufferInfo/inbound/{name}/{partition}", "/containerStats/{way}/events/total", "/openapi.json",
        "/relayStats/outbound/http/client/{client}",
    } <= set(paths)  # fmt: skip
    assert not any("rest" in path for path in paths)
    for path, operations in paths.items():
        for one in operations.values():
            segments = [parameter["name"] for parameter in one["parameters"] if parameter["in"] == "path"]
            assert segments == re.findall(r"{(\w+)}", path)
            assert all(parameter["required"] for parameter in one["parameters"] if parameter["in"] == "path")
            filtered = {"400"} if any("filter" in parameter["name"] for parameter in one["parameters"]) else set()
            assert set(one["responses"]) == {"200", "401", "403", "429", "500"} | filtered
    stream = {one["name"]: one for one in paths["/stream"]["get"]["parameters"]}
    assert stream["size"]["schema"] == {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
    assert {"binary", "json", "json_plain_value"} <= set(stream["output"]["schema"]["enum"])
    assert stream["checkPoint"]["content"]["application/json"]["schema"]["properties"]["windowScn"]["default"] == -1
    with served() as open_relay:
        value = open_relay.get("openapi.json").json
        assert "security" not in value
        assert set(value["paths"]["/stream"]["get"]["responses"]) == {"200", "400", "500"}


KNOWN: dict[str, list[Any]] = {
    "sources": ["40", "41", "40,41"], "name": ["person"], "partition": [1], "psource": ["person", "person:1"],
    "client": ["operator"], "source": [40, 41],
}  # fmt: skip
"""What there is; nobody would guess it."""
ALWAYS = {
    "/admin", "/physicalSources", "/physicalBuffers", "/containerStats/{way}/events/sources",
    "/containerStats/{way}/total", "/containerStats/container", "/openapi.json",
}  # fmt: skip
SOMETIMES = {"/stream", "/register", "/bufferInfo/inbound/{name}/{partition}"}
CHECKS = (
    "response_schema_conformance", "status_code_conformance", "content_type_conformance", "response_headers_conformance"
)  # fmt: skip


LONGEST_URL = 65_535
"""Bytes of a path with its query: docs/relay.md."""


def parsed(context: Any, response: Any) -> Any:
    """Databus's bodies say that they are text, whatever they are."""
    del context
    try:
        return json.loads(response.content)
    except ValueError:
        return response.content.decode("latin-1")


@pytest.mark.long
@pytest.mark.parametrize("examples", [3, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(2400)])])
def test_any_request_of_the_description_is_answered_as_it_says(relay: Served, examples: int) -> None:
    """Requests that fit the description and such that do not; no status, body or header beside what it says."""
    import schemathesis
    from schemathesis.core.result import Ok

    schemathesis.checks.load_all_checks()
    schemathesis.deserializer("text/plain")(parsed)
    wanted = schemathesis.checks.CHECKS.get_by_names(CHECKS)
    schema = schemathesis.openapi.from_dict(relay.get("openapi.json", token=TOKEN).json)
    schema.config.update(base_url=f"http://127.0.0.1:{relay.port}")
    modes = schemathesis.GenerationMode
    statuses: dict[str, set[int]] = {}

    def check(operation: Any, mode: Any) -> None:
        @settings(max_examples=examples, suppress_health_check=list(HealthCheck), database=None)
        @given(operation.as_strategy(generation_mode=mode), st.randoms(use_true_random=False))
        def ask(case: Any, random: Random) -> None:
            for given_values in (case.path_parameters, case.query):
                for name in set(KNOWN) & set(given_values) if mode is modes.POSITIVE else ():
                    given_values[name] = random.choice(KNOWN[name])
            if str(case.query.get("wait", "")).isdigit():
                case.query["wait"] = 1  # the rest of a minute tells nothing
            response = case.call(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=PATIENCE_SECONDS)
            if len(response.request.path_url) > LONGEST_URL:  # the HTTP server's own answer
                assert (response.status_code, response.content) == (400, b"Invalid HTTP request received.")
                return
            statuses.setdefault(case.path, set()).add(response.status_code)
            assert response.status_code in (200, 400, 401, 500), response.text
            assert mode is modes.NEGATIVE or response.status_code != 401
            if response.status_code == 500:
                assert response.headers["x-dbus-error"][0].startswith("com.linkedin.databus")
            case.validate_response(response, checks=wanted)

        ask()

    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        check(operation, modes.POSITIVE)
        if operation.query or operation.path_parameters or operation.body:
            check(operation, modes.NEGATIVE)
    answered = {path for path, seen in statuses.items() if 200 in seen}
    assert answered >= ALWAYS | (SOMETIMES if examples > 10 else set())
