"""What `[source]` says reaches the planner and the tasks, by the name of its key."""

from __future__ import annotations

import os
from typing import Any

from headgate.config import PipelineConfig, SourceConfig
from headgate.lake import Lake
from headgate.pipeline import source_options
from headgate.policies import POLICY_SETTINGS
from headgate.spark import OPTION_HELP, Options

SHARED = SourceConfig.model_fields.keys() & OPTION_HELP.keys() - POLICY_SETTINGS.keys()
OTHERWISE = {"url", "tables", "mask_key_env", "mask_key_file"}
"""Required, or not a field of the options."""
CHANGED: dict[str, Any] = {
    "chunk_rows": 7, "max_rows_per_batch": 8, "poll_ms": 99, "retry_seconds": 0, "snapshot_mode": "no_data",
    "start": "earliest", "watermark": "lock", "lock_hold": "read", "lock_wait_seconds": 3,
    "snapshot_locking_mode": "extended", "snapshot_share": 0.123456789, "signal_table": "d.signals",
    "relay": "https://relay:1", "relay_source": "shop", "relay_token_file": "/t", "relay_ca_file": "/c",
    "relay_fallback": True,
}  # fmt: skip


def parsed(**source: Any) -> Options:
    config = PipelineConfig.model_validate(
        {
            "name": "shop",
            "source": {"url": "mysql://u@h", "tables": ["d.*", "!d,x.t"], **source},
            "target": {"path": "/lake"},
        }
    )
    return Options.parse(source_options(config, Lake.of(config), slots=os.cpu_count() or 1))


def test_a_key_is_an_option_of_its_name() -> None:
    assert SHARED - OTHERWISE - {"snapshot_cut"} == CHANGED.keys(), "list the new key"
    options = parsed(**CHANGED)
    assert {name: getattr(options, name) for name in CHANGED} == CHANGED
    assert parsed(snapshot_cut="start").snapshot_cut == "start", "it does not go with `start`"
    assert options.patterns == ("d.*", "!d,x.t")


def test_the_defaults_of_both_are_the_same() -> None:
    expected = Options.parse({"url": "mysql://u@h", "tables": "d.*"})
    names = SHARED - OTHERWISE - {"snapshot_mode"}  # which a stream of the source does without
    assert {name: getattr(parsed(), name) for name in names} == {name: getattr(expected, name) for name in names}
