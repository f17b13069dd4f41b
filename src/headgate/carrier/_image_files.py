"""Serialised images: in a row of the carrier, or in a file that the row names.

Spark copies the bytes of a row about ten times on their way from a task of the source to who consumes them, and its JVM
has to collect these copies. If all of them run on one machine, a stream may name a folder there (option
``images_path``). A task then writes a record batch of at least ``_LEAST_BYTES`` to a file of its own, and its row has a
*stub*: an Arrow IPC stream with the schema of the images and no record batch, whose metadata names the file. The row
exists only once the file is complete.

Who gives the folder to the stream removes its files when a batch has been consumed, or has failed: a batch that is read
again gets new files. Readers map a file, so a reader that has opened one may go on after it is removed.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headgate.errors import DecodeError

__all__ = ["ImageFolder", "is_stub", "open_images", "serialised"]

_LEAST_BYTES: Final = 256 << 10
_FILE: Final = b"headgate.file"
"""Key in the metadata of a stub's Arrow schema."""


class ImageFolder:
    """Folder of images on this machine.

    :param least_bytes: smaller record batches stay in their rows.
    """

    def __init__(self, path: str | Path, least_bytes: int = _LEAST_BYTES) -> None:
        self.path = Path(path)
        self._least_bytes = least_bytes

    def serialised(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return a record batch as :func:`serialised` does, or the stub of its new file, if it is large."""
        if batch.nbytes < self._least_bytes:
            return serialised(batch)
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / f"{uuid.uuid4().hex}.arrow"
        with pa.OSFile(str(file), "wb") as sink:
            _write(sink, batch.schema, [batch])
        stub = pa.BufferOutputStream()
        _write(stub, batch.schema.with_metadata({**(batch.schema.metadata or {}), _FILE: str(file)}), [])
        return stub.getvalue()

    def clear(self) -> None:
        """Remove the folder with all images; the next large record batch makes it again."""
        shutil.rmtree(self.path, ignore_errors=True)


def is_stub(data: pa.Buffer) -> bool:
    """Return whether serialised images are in a file."""
    return _FILE in (pa.ipc.read_schema(data).metadata or {})


def serialised(batch: pa.RecordBatch) -> pa.Buffer:
    """Serialise a record batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    _write(sink, batch.schema, [batch])
    return sink.getvalue()


def _write(sink: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def open_images(blobs: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of serialised images, without copying them.

    :param blobs: buffers, or binary scalars; null scalars are skipped.
    :raises DecodeError: the file of a stub does not exist on this machine.
    """
    for blob in blobs:
        buffer = blob if isinstance(blob, pa.Buffer) else blob.as_buffer()
        if buffer is None:
            continue
        with pa.ipc.open_stream(buffer) as reader:
            file = (reader.schema.metadata or {}).get(_FILE)
            if file is None:
                yield from reader
            else:
                yield from _read(file.decode())


def _read(file: str) -> Iterator[pa.RecordBatch]:
    try:
        source = pa.memory_map(file)
    except FileNotFoundError:
        raise DecodeError(
            f"images are in {file}, which does not exist: it is on another machine, or was removed with its batch"
        ) from None
    with source, pa.ipc.open_stream(source) as reader:
        yield from reader
