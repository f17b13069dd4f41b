"""``headgate`` whose file system gives wrong answers in the driver, at random, if ``SOAK_SEED`` is not 0: calls fail
that did nothing, and calls fail that worked.
"""

from __future__ import annotations

import errno
import os
import random
import sys
from collections.abc import Callable
from typing import Any

from headgate.cli import main

SHARE = 0.03
"""Share of the calls that are answered wrongly."""


def lying(call: Callable[..., Any], choice: random.Random, after: list[int], before: list[int]) -> Callable[..., Any]:
    """Return a call that fails now and then: with an error of ``before`` without doing anything, or with one of
    ``after`` when it has worked.
    """

    def answer(*arguments: Any, **options: Any) -> Any:
        chance = choice.random()
        if chance >= SHARE:
            return call(*arguments, **options)
        if after and chance < SHARE / 2:
            call(*arguments, **options)
            number = choice.choice(after)
        elif before:
            number = choice.choice(before)
        else:
            return call(*arguments, **options)
        print(f"SOAK wrong answer {call.__name__} {errno.errorcode[number]}", file=sys.stderr, flush=True)
        raise OSError(number, os.strerror(number), *map(str, arguments[:1]))

    return answer


if __name__ == "__main__":
    seed = int(os.environ.get("SOAK_SEED", "0"))
    if seed:
        chosen = random.Random(seed)
        os.link = lying(os.link, chosen, [errno.EEXIST, errno.EIO, errno.ETIMEDOUT], [errno.EIO, errno.ENOSPC])
        os.fsync = lying(os.fsync, chosen, [errno.EIO], [errno.EIO, errno.ENOSPC])
        os.unlink = lying(os.unlink, chosen, [errno.EIO], [errno.EIO, errno.EACCES])
        os.replace = lying(os.replace, chosen, [errno.EIO], [errno.ENOSPC])
    main()
