"""Names of the topics that a pipeline writes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headgate.errors import TargetError
from headgate.names import split_table

if TYPE_CHECKING:
    from headgate.config import KafkaTargetConfig

__all__ = ["TopicNames", "batches_topic", "topic_name"]


def topic_name(name: str) -> str:
    """Return a name with ``_`` for each character that Kafka does not allow in topics."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)


def batches_topic(pipeline: str) -> str:
    """Return the topic in which a pipeline that delivers exactly once notes the batches that were sent."""
    return f"headgate-batches.{pipeline}"


@dataclass(frozen=True)
class TopicNames:
    """Names of the topics of one pipeline.

    :param others: topic → what it has, for topics with other messages than a table's.
    """

    prefix: str
    pattern: str
    others: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, config: KafkaTargetConfig, pipeline: str) -> TopicNames:
        """Return the names that a configuration gives."""
        names = cls(config.topic_prefix or pipeline, config.topic)
        others = (
            (config.schema_changes_topic, names.schema_changes, "schema changes"),
            (config.transactions, names.transactions, "transactions"),
            (config.heartbeat_ms > 0, names.heartbeats, "heartbeats"),
            (config.delivery == "exactly-once", batches_topic(pipeline), "batches that were sent"),
        )
        return replace(names, others={topic: what for is_sent, topic, what in others if is_sent})

    def of(self, table: str) -> str:
        """Return the topic of ``db.table``, with ``_`` for characters that Kafka does not allow.

        :raises TargetError: it is longer than 249 characters.
        """
        db, name = split_table(table)
        topic = topic_name(self.pattern.format(prefix=self.prefix, db=db, table=name))
        if len(topic) > 249 or topic in {".", ".."}:
            raise TargetError(
                f"the topic of {table} would be {topic[:80]!r}…, no name for Kafka; change target.kafka.topic"
            )
        return topic

    @property
    def schema_changes(self) -> str:
        """The topic of DDL statements."""
        return self.prefix

    @property
    def transactions(self) -> str:
        """The topic of begins and ends of transactions."""
        return f"{self.prefix}.transaction"

    @property
    def heartbeats(self) -> str:
        """The topic of heartbeats, with Debezium's default of ``topic.heartbeat.prefix``."""
        return f"__debezium-heartbeat.{self.prefix}"

    def distinct(self, tables: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
        """Return ``known`` (topic → table) and the topics of these tables.

        :raises TargetError: two tables would share a topic, or a table one with other messages.
        """
        topics = dict(known)
        for table in tables:
            topic = self.of(table)
            if topic in self.others:
                raise TargetError(
                    f"{table} would share the topic {topic} with messages about {self.others[topic]}; change"
                    " target.kafka.topic or target.kafka.topic_prefix"
                )
            other = topics.setdefault(topic, table)
            if other != table:
                raise TargetError(f"{other} and {table} would share the topic {topic}; change target.kafka.topic")
        return topics
