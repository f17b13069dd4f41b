"""Fetch Delta's jars into a folder: ``python scripts/_delta_jars.py FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from headgate.engine._settings import DELTA_PACKAGE
from headgate.errors import HeadgateError
from headgate_testing._cache import make_once
from headgate_testing._jars import drop_bundled, fetch_jars


def main(folder: Path) -> int:
    """Make ``folder`` unless it is there; the exit code."""
    try:
        with make_once(folder) as unfinished:
            if unfinished is not None:
                fetch_jars([DELTA_PACKAGE], unfinished)
                drop_bundled(unfinished)
    except HeadgateError as error:
        sys.stderr.write(f"headgate: {error}\n")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
