"""A log that a test writes, one transaction after another, and what a decoder makes of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate.binlog import Framer, Segment
from headgate.replication import LogDecoder
from headgate_testing._binlog import BinlogWriter, packets

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


class WrittenLog:
    """``number`` counts the transactions, all of ``UUID``."""

    def __init__(self) -> None:
        self.writer = BinlogWriter()
        self.events = [self.writer.rotate("binlog.000001"), self.writer.format_description()]
        self.number = 0

    def begin(self) -> None:
        self.number += 1
        self.events += [self.writer.gtid(UUID, self.number), self.writer.query("BEGIN")]

    def end(self) -> None:
        self.events.append(self.writer.xid())

    def decoded(self, decoder: LogDecoder, pieces: int = 1) -> Iterator[object]:
        """What the decoder gives if the log comes in so many pieces."""
        framer, at = Framer(), 0
        buf = np.frombuffer(packets(self.events), np.uint8).copy()
        for piece in range(pieces):
            end = len(buf) * (piece + 1) // pieces
            while True:
                item, at = framer.next(buf, at, end)
                if item is None:
                    break
                if isinstance(item, Segment):
                    yield from decoder.decode(item)
