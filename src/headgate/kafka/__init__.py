"""Messages of changes in Debezium's format, and their delivery to Kafka.

==========================  =======================================================================
``_target``                 a batch as messages: order and delivery
``_cluster``                the brokers: topics, errors; ``_heartbeats``, ``_topic_names``
``_producer``               librdkafka for Arrow columns
``debezium``                which messages a change gives, and their form
``schema_registry``         numbers of Avro schemas
``_log_order``              images in the order of the log
==========================  =======================================================================
"""

from __future__ import annotations

from headgate.kafka._cluster import check_brokers
from headgate.kafka._target import KafkaTarget
from headgate.kafka._topic_names import TopicNames

__all__ = ["KafkaTarget", "TopicNames", "check_brokers"]
