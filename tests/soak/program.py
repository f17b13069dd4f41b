"""``headgate`` whose file system gives the driver wrong answers at random: calls fail that did nothing, and calls fail
that worked. The file that ``SOAK_SHARE`` names has the share of the calls that are answered wrongly, and perhaps the
name of the only ones: ``0.5 link``. Key indexes of small tables are in files, too, so that these can be damaged.
"""

from __future__ import annotations

import errno
import os
import pkgutil
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate.cli import main


def lying(call: Callable[..., Any], share: Path, after: list[int], before: list[int]) -> Callable[..., Any]:
    """Return a call that fails now and then: with an error of ``before`` without doing anything, or with one of
    ``after`` when it has worked.
    """

    def answer(*arguments: Any, **options: Any) -> Any:
        chance, _, only = share.read_text().partition(" ")
        if only not in ("", call.__name__) or random.random() >= float(chance or 0):
            return call(*arguments, **options)
        if random.random() < 0.5:
            call(*arguments, **options)
            number = random.choice(after)
        else:
            number = random.choice(before)
        print(f"SOAK wrong answer {call.__name__} {errno.errorcode[number]}", file=sys.stderr, flush=True)
        raise OSError(number, os.strerror(number), *map(str, arguments[:1]))

    return answer


if __name__ == "__main__":
    file = Path(os.environ["SOAK_SHARE"])
    os.link = lying(os.link, file, [errno.EEXIST, errno.EIO, errno.ETIMEDOUT], [errno.EIO, errno.ENOSPC])
    os.fsync = lying(os.fsync, file, [errno.EIO], [errno.EIO, errno.ENOSPC])
    os.unlink = lying(os.unlink, file, [errno.EIO], [errno.EIO] * 5 + [errno.EACCES])
    os.replace = lying(os.replace, file, [errno.EIO], [errno.ENOSPC])
    os.rename = lying(os.rename, file, [errno.EIO], [errno.EIO, errno.ENOSPC])
    pkgutil.resolve_name("headgate.delta._local_tables")._ON_DISK_ROWS = 64
    main()
