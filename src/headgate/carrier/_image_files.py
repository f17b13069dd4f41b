"""Serialised images: in a row of the stream, or in a file that the row names.

The sinks evaluate a batch once: they fetch all rows of the stream by one job, and use only those rows afterwards. So a
row has to stay valid after its task has ended, and the rows of a batch have to fit into the driver's memory. With the
option ``images_path`` a task writes large record batches to files, each to a file of its own, and small ones too once
its rows have ``ROWS_BYTES`` divided by the number of tasks. The row then has a *stub*: an Arrow IPC stream with the
schema of the images and no record batch, whose metadata names the file. The row exists only once the file is complete.

File names are unique. If Spark runs a task twice (a retry, speculation), no row names the files of the attempt that did
not count. Who gives the folder to the stream removes it with all files when the batch has been consumed or has failed:
a batch that is evaluated again gets new files.

The folder is a local path, or a URI. If tasks run on several machines, all of these must reach it. A local file is
mapped, so a reader that has opened one may go on after it is removed.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headgate.errors import EngineError, HeadgateError
from headgate.files import open_private
from headgate.stores import folder_of, is_remote

__all__ = ["ImageFolder", "open_images", "serialised"]

_LEAST_BYTES: Final = 256 << 10
ROWS_BYTES: Final = 128 << 20
"""Most bytes of images in the rows of a batch, about."""
_FILE: Final = b"headgate.file"
"""Key in the metadata of a stub's Arrow schema."""


class ImageFolder:
    """Folder of images. Each task uses an instance of its own.

    :param path: a local path, or a URI.
    :param tasks: how many tasks a batch may have.
    :param least_bytes: larger record batches are always in files.
    """

    def __init__(self, path: str | Path, tasks: int = 1, least_bytes: int = _LEAST_BYTES) -> None:
        self.path = str(path)
        self._least_bytes = least_bytes
        self._rows_bytes = ROWS_BYTES // tasks

    def serialised(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return a record batch as :func:`serialised` does, or the stub of its new file.

        :raises EngineError: the file cannot be written.
        """
        if batch.nbytes < self._least_bytes and batch.nbytes <= self._rows_bytes:
            self._rows_bytes -= batch.nbytes
            return serialised(batch)
        file = f"{self.path}/{uuid.uuid4().hex}.arrow"
        with _file_errors(file, "written"), self._create(file) as sink:
            _write(sink, batch.schema, [batch])
        stub = pa.BufferOutputStream()
        _write(stub, batch.schema.with_metadata({**(batch.schema.metadata or {}), _FILE: file}), [])
        return stub.getvalue()

    @contextmanager
    def _create(self, file: str) -> Iterator[Any]:
        """Open a new file, and its folder if it does not exist; remove the file if it cannot be completed."""
        if is_remote(file):
            with folder_of(self.path).create(file.rpartition("/")[2]) as sink:
                yield sink
            return
        try:
            with open_private(Path(file), "xb") as sink:
                yield sink
        except BaseException:
            Path(file).unlink(missing_ok=True)
            raise

    def clear(self) -> None:
        """Remove the folder with all images; the next file makes it again. Errors are ignored."""
        if not is_remote(self.path):
            shutil.rmtree(self.path, ignore_errors=True)
            return
        folder = folder_of(self.path)
        with suppress(HeadgateError, OSError):
            folder.each(folder.delete, [file.name for file in folder.below()])


@contextmanager
def _file_errors(file: str, done: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, HeadgateError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise EngineError(f"images cannot be {done}: {file}: {reason}") from None


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
    """Yield the record batches of serialised images, without copying those of this machine.

    :param blobs: buffers, or binary scalars; null scalars are skipped.
    :raises EngineError: the file of a stub cannot be read.
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


def _read(file: str) -> list[pa.RecordBatch]:
    with _file_errors(file, "read"):
        if is_remote(file):
            folder, _, name = file.rpartition("/")
            source = pa.BufferReader(folder_of(folder).read(name))
        else:
            source = pa.memory_map(file)
        with source, pa.ipc.open_stream(source) as reader:
            batches = list(reader)
        if len(batches) != 1:  # Arrow takes the end of a file that was cut between two messages for a stream's
            raise pa.ArrowInvalid("it was cut")
        return batches
