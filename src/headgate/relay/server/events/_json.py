"""Events as JSON lines, in Databus's two encodings (``DbusEventSerializable.java``): keys in its order, no spaces.

``json`` has keys of bytes, schema ids and values in base64. ``json_plain_value`` has the value's bytes as text,
readable only if the values are text. Arrow builds the lines column by column: no Python object per event, except for
plain values.
"""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headgate.kernels import base64_text, text_bytes
from headgate.relay.databus import EOP_SOURCE, EventFields, byte_ranges, event_fields

__all__ = ["json_lines"]

_MAGIC: Final = -889_266_451
"""0xCAFEDEED as Java's int."""
_DIGEST_BYTES: Final = 16
_NO_DIGEST: Final = "A" * 22 + "=="


def json_lines(data: Any, *, plain: bool) -> bytes:
    """Return the lines of whole events (uint8[]), all of one version.

    :param plain: ``json_plain_value``.
    """
    if not len(data):
        return b""
    lines = _Lines(data, event_fields(data), "JSON_PLAIN_VALUE" if plain else "JSON")
    parts = lines.version_1() if data[0] == 0 else lines.version_2()
    return text_bytes(pc.binary_join_element_wise(*parts, "}\n", ""))


class _Lines:
    def __init__(self, data: Any, fields: EventFields, encoding: str) -> None:
        self._data, self._fields, self._encoding = data, fields, encoding

    def version_1(self) -> list[Any]:
        f = self._fields
        opcode = _choose(f.attributes & 3, ["", '"opcode":"UPSERT",', '"opcode":"DELETE",', ""])
        return [
            "{", opcode, self._key(), ',"sequence":', _number(f.scn), ',"logicalPartitionId":', _number(f.logical),
            ',"physicalPartitionId":', _number(f.physical), ',"timestampInNanos":', _number(f.stamp), ',"srcId":',
            _number(f.source), ',"schemaId":"', self._digests(), f'","valueEnc":"{self._encoding}","isReplicated":',
            _flag(f.attributes & 0x100),
            _choose((f.source == EOP_SOURCE).astype(np.int64), ["", ',"endOfPeriod":true']),
            _choose(f.attributes >> 2 & 1, ["", ',"traceEnabled":true']), ',"value":"', self._values(), '"',
        ]  # fmt: skip

    def version_2(self) -> list[Any]:
        f = self._fields
        opcode = _choose(f.attributes & 3, ["null", '"UPSERT"', '"DELETE"', "null"])
        kind = _choose((f.key >= 0).astype(np.int64), ["Number", "String"])
        payload = f.attributes & 0x80
        whole = self._part("payload", f.schema_version, self._digests(), f.value_size, self._values())
        has_before = f.before >= 0
        digest_starts = f.before - _DIGEST_BYTES
        before = self._part(
            "metadata",
            f.before_version,
            self._base64(digest_starts, np.where(has_before, _DIGEST_BYTES, 0)),
            f.before_size,
            self._values_at(f.before, f.before_size),
        )
        return [
            f'{{"version":2,"magicByte":{_MAGIC},"headerCrc":', _number(f.header_crc), ',"bodyCrc":',
            _number(f.body_crc), ',"opcode":', opcode, ',"keyType":"', kind, '",', self._key(),
            f',"valueEnc":"{self._encoding}","isReplicated":', _flag(f.attributes & 0x10), ',"traceOn":',
            _flag(f.attributes & 0x20), ',"hasPayloadMetadata":', _flag(f.attributes & 0x40), ',"hasPayload":',
            _flag(payload), ',"timestampInNanos":', _number(f.stamp), ',"srcId":', _number(f.source),
            ',"logicalPartitionId":', _number(f.logical), ',"physicalPartitionId":', _number(f.physical),
            ',"sequence":', _number(f.scn), pc.if_else(pa.array(has_before), before, ""),
            pc.if_else(pa.array(payload != 0), whole, ""),
        ]  # fmt: skip

    @staticmethod
    def _part(name: str, version: Any, digests: pa.Array, size: Any, values: pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(
            f',"{name}Length":',
            _number(size),
            f',"{name}SchemaVersion":',
            _number(version),
            f',"{name}SchemaId":"',
            digests,
            f'","{name}Value":"',
            values,
            '"',
            "",
        )

    def _key(self) -> pa.Array:
        f = self._fields
        numbers = pc.binary_join_element_wise('"key":', _number(f.long_key), "")
        texts = pc.binary_join_element_wise('"keyBytes":"', self._base64(f.key, f.key_size * (f.key >= 0)), '"', "")
        return pc.if_else(pa.array(f.key >= 0), texts, numbers)

    def _digests(self) -> pa.Array:
        starts = self._fields.digest
        texts = self._base64(starts, np.where(starts >= 0, _DIGEST_BYTES, 0))
        return pc.if_else(pa.array(starts >= 0), texts, _NO_DIGEST)

    def _values(self) -> pa.Array:
        return self._values_at(self._fields.value, self._fields.value_size)

    def _values_at(self, starts: Any, sizes: Any) -> pa.Array:
        if self._encoding == "JSON":
            return self._base64(starts, sizes)
        texts = (
            self._data[at : at + size].tobytes().decode("utf-8", "replace")
            for at, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        )
        return pa.array([json.dumps(text, ensure_ascii=False)[1:-1] for text in texts], pa.string())

    def _base64(self, starts: Any, sizes: Any) -> pa.Array:
        """Return ranges of the data in base64."""
        return base64_text(byte_ranges(self._data, starts, sizes))


def _number(values: Any) -> pa.Array:
    return pa.array(values).cast(pa.string())


def _flag(bits: Any) -> pa.Array:
    return _choose((bits != 0).astype(np.int64), ["false", "true"])


def _choose(which: Any, texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.string()).take(pa.array(which))
