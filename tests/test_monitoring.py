"""``deploy/monitoring``: rules and dashboard have metrics and labels that exist, and promtool accepts the rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from headgate.carrier import ControlFolder
from headgate.ui import Watched, create_app
from tests.relay.server.serving import served
from tests.ui.status import put, reading
from tests.ui.test_app import ask

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "monitoring"
RULES = yaml.safe_load((FOLDER / "headgate-rules.yml").read_text("utf-8"))
CASES = yaml.safe_load((FOLDER / "headgate-rules-test.yml").read_text("utf-8"))
DASHBOARD = json.loads((FOLDER / "grafana" / "dashboards" / "headgate.json").read_text("utf-8"))
OF_PROMETHEUS = {"le", "job", "instance"}


def expressions() -> dict[str, str]:
    """PromQL of the rules, by alert, and of the dashboard, by panel and target."""
    rules = {rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}
    panels = {
        f"{panel['title']} {panel['id']} {target['refId']}": target["expr"]
        for panel in DASHBOARD["panels"]
        for target in panel.get("targets", ())
    }
    variables = {"$pipeline": ".*", "$__rate_interval": "5m"}
    for name, text in variables.items():
        panels = {panel: one.replace(name, text) for panel, one in panels.items()}
    return {**rules, **panels}


def series() -> list[str]:
    """The input of the rules' tests."""
    return [one["series"] for case in CASES["tests"] for one in case["input_series"]]


def exposed(text: str) -> Iterator[tuple[str, set[str]]]:
    """Names of the samples of an exposition, and their labels. A family without a sample has its name."""
    for family in text_string_to_metric_families(text):
        yield family.name + "_total" * (family.type == "counter"), set()
        for sample in family.samples:
            yield sample.name, set(sample.labels)


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Labels by metric, of a page and of a relay."""
    watched = Watched("shop", ControlFolder(str(tmp_path_factory.mktemp("inbox"))))
    with served() as relay:
        of_relay = relay.get("metrics").body.decode()
    put(watched.inbox, activity={**reading(), "rows": 5}, index={}, kafka={})  # now, so that it is alive
    texts = ask(create_app([watched]), "/metrics").text, of_relay
    labels: dict[str, set[str]] = {}
    for text in texts:
        for name, known in exposed(text):
            labels.setdefault(name, set()).update(known)
    return labels


def test_every_metric_is_one_of_headgate(metrics: dict[str, set[str]]) -> None:
    used = {name for text in expressions().values() for name in re.findall(r"\bheadgate_\w+", text)}
    used |= {one.partition("{")[0] for one in series()}
    assert len(used) > 25
    assert used - metrics.keys() == set()


def test_every_label_is_one_of_its_metric(metrics: dict[str, set[str]]) -> None:
    selectors = [
        (name, label)
        for text in [
            *expressions().values(),
            *(one["series"] for case in CASES["tests"] for one in case["input_series"]),
        ]
        for name, inner in re.findall(r"\b(headgate_\w+)\{([^}]*)\}", text)
        for label in re.findall(r"(\w+)\s*(?:=~|!=|=)", inner)
        if not name.startswith("headgate_relay_")  # without a consumer a relay has no sample of some
    ]
    assert selectors
    assert [one for one in selectors if one[1] not in metrics[one[0]] | OF_PROMETHEUS] == []


def test_every_alert_is_tested() -> None:
    alerts = {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    cases = [one for case in CASES["tests"] for one in case.get("alert_rule_test", ())]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts


def test_an_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for group in RULES["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
            assert rule["annotations"].keys() == {"summary", "description", "runbook"}, rule["alert"]


def test_panels_are_apart_and_have_a_query() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: dict[tuple[int, int], int] = {}
    for panel in panels:
        assert panel["type"] == "row" or panel["targets"], panel["title"]
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        for cell in [(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]:
            assert cells.setdefault(cell, panel["id"]) == panel["id"], panel["title"]


def test_provisioning_and_scraping_name_files_that_are_there() -> None:
    scraping = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))
    assert all((FOLDER / name).exists() for name in scraping["rule_files"])
    for file in (FOLDER / "grafana" / "provisioning").rglob("*.yml"):
        assert yaml.safe_load(file.read_text("utf-8"))["apiVersion"] == 1


# --- with promtool


def promtool(*words: str) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool, of Prometheus, is not on PATH")
    done = subprocess.run([program, *words], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_do_what_their_tests_say() -> None:
    assert "SUCCESS" in promtool("check", "rules", "headgate-rules.yml")
    assert "SUCCESS" in promtool("test", "rules", "headgate-rules-test.yml")


def test_the_scrape_configuration_is_one() -> None:
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", "prometheus.yml")


def test_prometheus_parses_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": text} for number, text in enumerate(expressions().values())]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(file))
