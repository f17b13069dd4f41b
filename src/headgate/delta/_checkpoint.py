"""Checkpoints of a table's log: the actions of its newest version, so that readers need not replay the whole log.

No commit waits for one: the upkeep of a table writes one from time to time.

**Without tombstones**, if the table's properties reserve the removal of files to headgate
(:data:`RETENTION_PROPERTIES`). Delta's checkpoints list recently removed files, to keep VACUUM from deleting them too
early. A table with constant upserts has many more of those than files: with 150,000 of them a checkpoint takes 2.5 s.
If the retention is so long that VACUUM removes nothing, they have no purpose. Other tables get none here: another
program has changed their properties, or gave them features that headgate does not support.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headgate.delta._definition import FEATURES, RETENTION_PROPERTIES
from headgate.delta._files import files_of
from headgate.delta._log import LAST_CHECKPOINT, Snapshot, TableLog, checkpoint_name, checkpointed_version
from headgate.errors import HeadgateError

__all__ = ["worth_checkpoint", "write_checkpoint"]

log = logging.getLogger("headgate")

_COMMITS: Final = 50
"""After this many commits a new checkpoint is worth its cost for a table of any size …"""
_FEW_COMMITS: Final = 10
"""… and after fewer than this many for none."""
_FILES_A_COMMIT: Final = 20
"""Writing this many files into a checkpoint takes about 1 ms, as does a reader's replay of a commit of upserts."""

_TEXT, _LONG, _INT = pa.string(), pa.int64(), pa.int32()
_MAP, _LIST = pa.map_(pa.string(), pa.string()), pa.list_(pa.string())
_VECTOR: Final = pa.struct(
    {"storageType": _TEXT, "pathOrInlineDv": _TEXT, "offset": _INT, "sizeInBytes": _INT, "cardinality": _LONG}
)
_FILE: Final = {"path": _TEXT, "partitionValues": _MAP, "size": _LONG, "dataChange": pa.bool_(), "tags": _MAP}
_SCHEMA: Final = pa.schema(
    {
        "txn": pa.struct({"appId": _TEXT, "version": _LONG}),
        "domainMetadata": pa.struct({"domain": _TEXT, "configuration": _TEXT, "removed": pa.bool_()}),
        "add": pa.struct(
            {**_FILE, "modificationTime": _LONG, "stats": _TEXT, "deletionVector": _VECTOR, "clusteringProvider": _TEXT}
        ),
        "remove": pa.struct({**_FILE, "deletionTimestamp": _LONG, "deletionVector": _VECTOR}),
        "metaData": pa.struct(
            {
                "id": _TEXT,
                "name": _TEXT,
                "description": _TEXT,
                "format": pa.struct({"provider": _TEXT, "options": _MAP}),
                "schemaString": _TEXT,
                "partitionColumns": _LIST,
                "configuration": _MAP,
                "createdTime": _LONG,
            }
        ),
        "protocol": pa.struct(
            {"minReaderVersion": _INT, "minWriterVersion": _INT, "readerFeatures": _LIST, "writerFeatures": _LIST}
        ),
    }
)


def worth_checkpoint(commits: int, files: int | None) -> bool:
    """Whether a checkpoint is worth its cost after this many commits since the last one.

    :param files: number of the table's data files; None: unknown.
    """
    least = _COMMITS if files is None else max(_FEW_COMMITS, files // _FILES_A_COMMIT)
    return commits >= min(least, _COMMITS)


def write_checkpoint(folder: str) -> int | None:
    """Write a checkpoint of the newest version, if headgate supports the table and alone removes its files. Return the
    version; None: nothing was written. A failure is logged.
    """
    try:
        table = TableLog(folder).refresh()
        is_ours = RETENTION_PROPERTIES.items() <= table.properties.items()
        if is_ours and table.features is not None and table.features <= FEATURES:
            _write(folder, table)
            return table.version
    except (HeadgateError, OSError, pa.ArrowException) as error:
        log.warning("no checkpoint of the log of %s: %s", folder, str(error).partition("\n")[0])
    return None


def _write(folder: str, table: Snapshot) -> None:
    """Write one file, in the classic form (Delta Transaction Log Protocol, "Checkpoints")."""
    rows = [_line(action) for action in _actions(table)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, _SCHEMA), sink, compression="snappy", store_schema=False)
    data, files = sink.getvalue(), files_of(folder)
    files.put(checkpoint_name(table.version), data)
    if checkpointed_version(folder) < table.version:
        about = {"version": table.version, "size": len(rows), "sizeInBytes": data.size}
        files.put(LAST_CHECKPOINT, json.dumps({**about, "numOfAddFiles": len(table.files)}).encode())


def _actions(table: Snapshot) -> Iterator[dict[str, Any]]:
    yield {"protocol": table.protocol}
    yield {"metaData": table.metadata}
    for application, version in table.transactions.items():
        yield {"txn": {"appId": application, "version": version}}
    for domain, configuration in table.domains.items():
        yield {"domainMetadata": {"domain": domain, "configuration": configuration, "removed": False}}
    for file in table.files.values():
        yield {"add": {**file.action, "dataChange": False}}


def _line(action: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an action to a row: maps as pairs."""
    return {kind: _pairs(value, _SCHEMA.field(kind).type) for kind, value in action.items()}


def _pairs(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return list(value.items())
    if pa.types.is_struct(kind):
        return {field.name: _pairs(value.get(field.name), field.type) for field in kind}
    return value
