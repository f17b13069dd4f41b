"""Rows as events, and back: Avro schemas and records, Databus's events in both versions. Bytes and arrays only.

============  ===========================================================================
``_schemas``  Avro schemas of table definitions, in versions; the registry folder
``_avro``     rows of Arrow columns as Avro binary
``_json``     events as JSON lines
``_decode``   rows in Avro binary as Arrow columns
``_choice``   sources and Databus's key filters; ``_where``: predicates over ``_rows``
============  ===========================================================================
"""
