"""The metrics: names, labels and values, read back with Prometheus' own parser."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from headgate.carrier import ControlFolder
from headgate.ui import Watched, create_app
from tests.ui.status import put, reading
from tests.ui.test_app import ask

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def families(*pipelines: Watched) -> list[Metric]:
    return list(text_string_to_metric_families(ask(create_app(pipelines), "/metrics").text))


def samples(*pipelines: Watched) -> dict[tuple[str, ...], float]:
    """``(name, label values in order of label names)`` → value."""
    values = {}
    for family in families(*pipelines):
        for sample in family.samples:
            values[(sample.name, *(value for _, value in sorted(sample.labels.items())))] = sample.value
    return values


def test_values(tmp_path: Path) -> None:
    watched = Watched("shop", ControlFolder(str(tmp_path)))
    status = put(watched.inbox)
    values = samples(watched)
    assert status.batch is not None
    expected = {
        ("headgate_up", "shop"): 1, ("headgate_failed", "shop"): 0, ("headgate_trying_again", "shop"): 0,
        ("headgate_lag_seconds", "shop"): 1.5, ("headgate_lag_transactions", "shop"): 312,
        ("headgate_changes_per_second", "shop"): 41.2, ("headgate_rows_per_second", "shop"): 25000,
        ("headgate_freshness_seconds_bucket", "0.5", "shop"): 400,
        ("headgate_freshness_seconds_bucket", "1.0", "shop"): 3000,
        ("headgate_freshness_seconds_bucket", "+Inf", "shop"): 4321,
        ("headgate_freshness_seconds_count", "shop"): 4321, ("headgate_freshness_seconds_sum", "shop"): 3900.5,
        ("headgate_freshness_recent_seconds", "shop", "0.5"): 0.84,
        ("headgate_freshness_recent_seconds", "shop", "0.99"): 2.1,
        ("headgate_writes_total", "shop", "upsert"): 40, ("headgate_writes_total", "shop", "append"): 8,
        ("headgate_writes_total", "shop", "overwrite"): 0,
        ("headgate_batches_total", "shop"): 12, ("headgate_last_batch_seconds", "shop"): 2.5,
        ("headgate_last_batch_timestamp_seconds", "shop"): status.batch.committed_us / 1e6,
        ("headgate_table_state", "shop", "live", "shop.orders"): 1,
        ("headgate_table_state", "shop", "stale", "shop.orders"): 0,
        ("headgate_table_state", "shop", "stopped", "shop.old"): 1,
        ("headgate_table_changes_total", "shop", "shop.orders"): 4321,
        ("headgate_table_rows_total", "shop", "shop.orders"): 1000,
        ("headgate_table_chunks_done", "shop", "shop.items"): 3,
        ("headgate_table_chunks_estimate", "shop", "shop.items"): 8,
        ("headgate_table_files", "vectors", "shop", "shop.orders"): 3,
        ("headgate_table_bytes", "shop", "shop.orders"): 1_250_000,
        ("headgate_lake_files", "log", "shop"): 90, ("headgate_lake_bytes", "shop"): 2_500_000,
    }  # fmt: skip
    assert {key: values.get(key) for key in expected} == expected
    assert ("headgate_table_chunks_done", "shop", "shop.orders") not in values
    kafka = {"messages": 12, "bytes": 3400, "seconds": 0.25}
    put(
        watched.inbox,
        activity=reading(),
        index={"tables_building": 1, "bytes_on_disk": 240_000_000},
        kafka=kafka,
        requests={"seconds": 60, "put": 5, "get": 7, "list": 3, "delete": 1},
    )
    now = samples(watched)
    doing = {
        ("headgate_phase", "reading", "shop"): 1, ("headgate_phase", "waiting", "shop"): 0,
        ("headgate_key_index_bytes", "shop"): 240_000_000, ("headgate_key_index_tables_building", "shop"): 1,
        ("headgate_kafka_messages_total", "shop"): 12, ("headgate_kafka_bytes_total", "shop"): 3400,
        ("headgate_kafka_seconds_total", "shop"): 0.25,
        ("headgate_store_requests_total", "get", "shop"): 7, ("headgate_store_requests_total", "list", "shop"): 3,
        ("headgate_batch_rows_estimate", "shop"): 500000,
        ("headgate_table_snapshot_rows", "shop", "shop.items"): 750000,
        ("headgate_table_snapshot_rows_estimate", "shop", "shop.items"): 2000000,
    }  # fmt: skip
    assert {key: now.get(key) for key in doing} == doing
    assert 3.9 <= now["headgate_phase_seconds", "shop"] <= 60
    put(watched.inbox, activity={**reading(), "phase": "applying", "rows": 131072})
    assert samples(watched)["headgate_batch_rows", "shop"] == 131072


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    watched = Watched("shop", ControlFolder(str(tmp_path)))
    put(watched.inbox, lag={}, freshness={})
    values = samples(watched)
    unknown = {
        "headgate_lag_seconds", "headgate_lag_transactions", "headgate_batch_rows", "headgate_phase_seconds",
        "headgate_freshness_seconds_count", "headgate_freshness_recent_seconds", "headgate_key_index_bytes",
    }  # fmt: skip
    assert unknown & {name for name, *_ in values} == set()


def test_a_pipeline_that_does_not_run_has_no_lag(tmp_path: Path) -> None:
    watched = Watched("shop", ControlFolder(str(tmp_path)))
    put(watched.inbox, state="failed", error="no grant")
    values = samples(watched, Watched("new", ControlFolder(str(tmp_path / "new"))))
    assert (values["headgate_up", "shop"], values["headgate_failed", "shop"]) == (0, 1)
    assert (values["headgate_up", "new"], values["headgate_failed", "new"]) == (0, 0)
    assert ("headgate_lag_seconds", "shop") not in values
    assert ("headgate_freshness_recent_seconds", "shop", "0.5") not in values
    assert values["headgate_freshness_seconds_count", "shop"] == 4321, "a total stays"
    put(watched.inbox, error="the connection ended")
    assert samples(watched)["headgate_trying_again", "shop"] == 1


def test_all_are_documented(tmp_path: Path) -> None:
    """By name, labels, kind, and what they are."""
    watched = Watched("shop", ControlFolder(str(tmp_path)))
    put(watched.inbox, activity={**reading(), "rows": 5}, index={}, kafka={}, requests={})
    rows = re.findall(r"^\| `(headgate_\w+)`(?:\{(.+)\})? \| (\w+) \| (.+) \|$", DOCS.read_text("utf-8"), re.MULTILINE)
    documented = {name: (labels, kind, text.replace("`", "")) for name, labels, kind, text in rows}
    declared = families(watched)
    names = [family.name + "_total" * (family.type == "counter") for family in declared]
    assert sorted(names) == sorted(documented)
    for name, family in zip(names, declared, strict=True):
        labels, kind, text = documented[name]
        assert kind == family.type
        assert text.startswith(family.documentation), name
        known = {"pipeline", "le", *filter(None, labels.split(", "))} | ({"table"} if "_table_" in name else set())
        assert {label for sample in family.samples for label in sample.labels} | {"le"} == known | {"le"}, name
