"""CHAR, VARCHAR, TEXT and BINARY, VARBINARY, BLOB.

| type | log | text |
|---|---|---|
| CHAR | stored bytes in the column's character set, trailing spaces (characters, not bytes) removed | the same |
| VARCHAR, TEXT types | stored bytes in the column's character set | the same |
| BINARY(n) | trailing 0x00 removed | n bytes |
| VARBINARY, BLOB types | stored bytes | the same |

With ``character_set_results = NULL`` the text has the same bytes as the log, so one conversion serves both. Its result
must be that of MySQL's own ``CONVERT(… USING utf8mb4)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from headgate.catalog import Column
from headgate.columns._charsets import converter_for
from headgate.columns._codec import BaseCodec
from headgate.columns._hex_keys import needs_hex, with_hex_keys
from headgate.errors import AmbiguousKeyError, DecodeError, UnsupportedError
from headgate.kernels import Cells, copy

__all__ = ["BytesCodec", "FixedBytesCodec", "StringConverter", "TextCodec"]

_UTF8 = frozenset({"utf8mb4", "utf8mb3", "ascii"})


class StringConverter:
    """Converter of stored bytes in one character set to an Arrow string array, for text columns, ENUM and SET.

    :param key: the column is in a key: a value whose text is ambiguous is an AmbiguousKeyError, or ``spelled``.
    :raises UnsupportedError: the character set has no converter.
    """

    def __init__(self, codec: BaseCodec, charset: str | None, *, key: bool = False, spelled: bool = False) -> None:
        self._codec = codec
        self._charset = charset
        self._error = AmbiguousKeyError if key else DecodeError
        self._spelled = spelled
        self._convert = None if charset is None or charset in _UTF8 else converter_for(charset, exact=key)
        self._what = f"text of character set {charset}" + " that MySQL maps to UTF-8 and back, as a key must be" * key
        if self._convert is None and charset is not None and charset not in _UTF8:
            raise UnsupportedError(
                f"character set {charset} is not supported (column type {codec.column.mysql}); ALTER the column to "
                "utf8mb4 or leave the table out",
                table=codec.table,
                column=codec.column.name,
            )

    def __call__(self, cells: Cells) -> pa.Array:
        """Return the cells' text. Raise if bytes are not text of the character set."""
        if self._convert is None:
            return self._codec.strings(cells, *self._codec.gathered(cells))
        offsets, data, unconvertible = self._convert(cells)
        if len(unconvertible) and not self._spelled:
            raise self._codec.undecodable(cells, int(unconvertible[0]), self._what, self._error)
        self._codec.check_total(len(data))
        texts = self._codec.array(cells, offsets, data, data_type=pa.string())
        return with_hex_keys(texts, cells, unconvertible, self._charset or "") if self._spelled else texts


class TextCodec(BaseCodec):
    """CHAR, VARCHAR, TINYTEXT, TEXT, MEDIUMTEXT, LONGTEXT as string."""

    arrow_type = pa.string()

    def __init__(self, column: Column, table: str, *, key: bool = False, spelled: bool = False) -> None:
        super().__init__(column, table)
        self._strings = StringConverter(self, column.charset, key=key, spelled=key and spelled and needs_hex(column))

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        return self._strings(cells)

    from_text = from_log


class BytesCodec(BaseCodec):
    """VARBINARY, TINYBLOB, BLOB, MEDIUMBLOB, LONGBLOB as binary."""

    arrow_type = pa.binary()

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        offsets, data = self.gathered(cells)
        return self.array(cells, offsets, data[: offsets[-1]])

    from_text = from_log


@njit(cache=True, nogil=True)
def _pad(buf: Any, offset: Any, length: Any, valid: Any, size: int, offsets: Any, out: Any) -> int:
    """Copy every cell to ``size`` bytes of the zeroed ``out``. Return the first row that is longer, or -1."""
    at = 0
    offsets[0] = 0
    for i in range(len(valid)):
        if valid[i] == 1:
            if length[i] > size:
                return i
            copy(out, at, buf, offset[i], np.int64(length[i]))
            at += size
        offsets[i + 1] = at
    return -1


class FixedBytesCodec(BaseCodec):
    """BINARY(n) as binary, always n bytes."""

    arrow_type = pa.binary()

    def from_log(self, cells: Cells) -> pa.Array:
        """See :class:`Codec`."""
        size = self.column.length
        total = size * int(np.count_nonzero(cells.valid == 1))
        self.check_total(total)
        offsets: npt.NDArray[np.int32] = np.empty(len(cells.valid) + 1, np.int32)
        data = np.zeros(total, np.uint8)
        bad = _pad(cells.buf, cells.offset, cells.length, cells.valid, size, offsets, data)
        if bad >= 0:
            raise self.undecodable(cells, bad, f"at most {size} bytes long")
        return self.array(cells, offsets, data)

    from_text = from_log
