"""``headgate`` that waits after each batch was read: it makes a file ``read-N`` and goes on when there is ``write-N``.
The folder is ``STEPS``.
"""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

from headgate.carrier import Batch
from headgate.cli import main
from headgate.sinks import BatchWriter
from headgate_testing import wait_until

if __name__ == "__main__":
    folder, numbers, decide = Path(os.environ["STEPS"]), count(), BatchWriter._decide

    def waiting(writer: BatchWriter, session: Any, batch: Batch, before: Any) -> Any:
        if batch.parts:
            number = next(numbers)
            (folder / f"read-{number}").touch()
            wait_until((folder / f"write-{number}").exists, "the test does not go on", seconds=300, every=0.1)
        return decide(writer, session, batch, before)

    BatchWriter._decide = waiting  # type: ignore[assignment, method-assign]
    main()
