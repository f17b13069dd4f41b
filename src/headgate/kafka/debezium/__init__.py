"""Debezium's format of messages: the contract with its consumers.

===================  ==============================================================================
``envelope``         which messages a change gives, and how their columns are written
``values``           columns as Kafka Connect has them
``json`` ``avro``    keys and values as ``JsonConverter`` and ``AvroConverter`` write them
``connect_avro``     Connect's types in Avro
``schema``           schemas of envelopes, transactions, heartbeats and statements
``source``           the field ``source``
``transactions``     the topic of transactions
``ddl``              the topic of statements
===================  ==============================================================================
"""
