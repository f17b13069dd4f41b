"""``/metrics``: what Prometheus reads of a relay."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from headgate.relay.server import Tenant
from headgate.web import Token
from tests.relay.server.rows import UUID, block, people
from tests.relay.server.serving import Served, served
from tests.relay.server.test_app import GENERATION, checkpoint

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "relay.md"
ROW = re.compile(r"\| `headgate_relay_(\w+)` \| (\w+) \| (.*) \| (.*) \|")
STAMP = 1_700_000_000.0
"""When the rows of the tests were committed."""
PERSON = ("source", "person:1")
HERE = ("client", "127.0.0.1")


def figures(relay: Served, token: str | None = None) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    answer = relay.get("metrics", token=token)
    assert answer.status == 200, answer
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name.removeprefix("headgate_relay_"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def put(relay: Served, number: int) -> None:
    relay.put(block(people([number], gtids=[f"{UUID}:{number}"], pos=[number * 100])))


def test_every_figure_is_explained_and_has_its_labels() -> None:
    with served() as relay:
        put(relay, 1)
        relay.get("stream", sources="40", size="100000", output="binary", checkPoint=checkpoint(GENERATION + 1))
        samples = figures(relay)
        text = relay.get("metrics").body.decode()
    rows = {name: (kind, labels, about) for name, kind, labels, about in ROW.findall(DOCS.read_text())}
    assert {name: ", ".join(sorted(label for label, _ in labels)) or "\N{EN DASH}" for name, labels in samples} == {
        name: labels for name, (_, labels, _) in rows.items()
    }
    for name, (kind, _, about) in rows.items():
        assert f"# HELP headgate_relay_{name} {about}\n# TYPE headgate_relay_{name} {kind}\n" in text


def test_what_came_and_went() -> None:
    with served() as relay:
        for number in (1, 2, 3):
            put(relay, number)
        body = relay.get(
            "stream", sources="40", size="100000", output="json", checkPoint=checkpoint(GENERATION + 1)
        ).body
        assert body.count(b'"isReplicated"') == 4
        relay.get("stream", sources="77")
        samples = figures(relay)

        def of(name: str, *labels: tuple[str, str]) -> float:
            return samples[name, frozenset(labels)]

        assert (of("running", PERSON), of("failed", PERSON)) == (1, 0)
        assert (of("events_total", PERSON), of("sent_events_total", PERSON)) == (3, 2)
        assert of("client_events_total", HERE) == 2
        assert of("client_event_bytes_total", HERE) == of("sent_event_bytes_total", PERSON)
        assert 0 < of("sent_event_bytes_total", PERSON) < of("event_bytes_total", PERSON)
        assert of("client_lag_scns", HERE, PERSON) == 2
        assert of("newest_commit_timestamp_seconds", PERSON) == STAMP
        assert of("buffer_oldest_timestamp_seconds", PERSON) == STAMP
        assert of("delay_seconds", PERSON) > 0
        assert of("buffer_bytes", PERSON) > 0
        stream = ("command", "stream")
        assert (of("requests_total", stream), of("request_errors_total", stream)) == (2, 1)
        assert of("requests_total", ("command", "sources")) == 0
        assert of("connections") >= 0


def test_a_source_that_stopped() -> None:
    with served() as relay:
        feeder = relay.relay.partitions[1].feeder
        feeder._fail("a row image in the log leaves columns out")
        samples = figures(relay)
    assert samples["running", frozenset({PERSON})] == 0
    assert samples["failed", frozenset({PERSON})] == 1
    assert ("newest_commit_timestamp_seconds", frozenset({PERSON})) not in samples


def test_of_tenants_operators_only_see_them() -> None:
    whole, part = "0123456789-whole", "0123456789-part-"
    tenants = [Tenant("operator", Token(whole)), Tenant("kennel", Token(part), sources=("com.example.*",))]
    with served(tenants=tenants) as relay:
        assert ("running", frozenset({PERSON})) in figures(relay, whole)
        assert relay.get("metrics", token=part).status == 403
        assert relay.get("metrics").status == 401
