from __future__ import annotations

import pytest

from headgate.config import parse_config
from headgate.errors import ConfigError, TargetError
from headgate.sinks._kafka import TopicNames

DEFAULT = TopicNames("shop", "{prefix}.{db}.{table}")
TEXT = """\
name = "shop"
[source]
url = "mysql://u@h"
tables = ["shop.*"]
{source}
[target]
path = "/lake"
{target}
"""


def test_topics() -> None:
    assert DEFAULT.of("shop.orders") == "shop.shop.orders"
    assert DEFAULT.of("shop.a b.ü$") == "shop.shop.a_b.__"
    assert TopicNames("p", "cdc-{table}").of("shop.orders") == "cdc-orders"
    with pytest.raises(TargetError, match="no name for Kafka"):
        DEFAULT.of("shop." + "x" * 250)


def test_two_tables_of_one_topic_are_refused() -> None:
    known = DEFAULT.distinct(["shop.a$", "shop.b"], {})
    assert known == {"shop.shop.a_": "shop.a$", "shop.shop.b": "shop.b"}
    assert DEFAULT.distinct(["shop.b"], known) == known
    with pytest.raises(TargetError, match=r"shop\.a\$ and shop\.a_ would share"):
        DEFAULT.distinct(["shop.a_"], known)


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("", 'mode = "kafka"', "bootstrap is missing"),
        ("", '[target.kafka]\nbootstrap = "k:1"', 'needs "kafka" in target.mode'),
        ("", 'mode = "kafka"\n[target.kafka]\nbootstrap = ""', r"target\.kafka\.bootstrap"),
        ("", 'mode = "kafka"\n[target.kafka]\nbootstrap = "k"\ntopic = "{db}"', r"a name with \{table\}"),
        ("", 'mode = "kafka"\n[target.kafka]\nbootstrap = "k"\ntopic = "{table}{x}"', r"a name with \{table\}"),
        ("", 'mode = "kafka"\n[target.kafka]\nbootstrap = "k"\ntopic_prefix = "a b"', "first part of the names"),
        ('zero_dates = "text"', 'mode = "kafka"\n[target.kafka]\nbootstrap = "k"', "zero_dates"),
    ],
)
def test_wrong_configurations(source: str, target: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse_config(TEXT.format(source=source, target=target))


def test_a_configuration() -> None:
    target = 'mode = ["kafka", "current"]\n[target.kafka]\nbootstrap = "k:9092"\nsettings_file = "/k"'
    config = parse_config(TEXT.format(source="", target=target)).target
    assert config.mode == ("current", "kafka")
    assert config.kafka is not None
    assert (config.kafka.topic, config.kafka.settings_file, config.kafka.tombstones) == (
        "{prefix}.{db}.{table}", "/k", True,
    )  # fmt: skip
