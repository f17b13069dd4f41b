"""The Python of Spark's processes: of executors, and of those in which the driver plans. Spark knows only one for both.

PySpark reads it from the environment. It takes the setting ``spark.pyspark.python`` into account only in a process that
``spark-submit`` has started.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from headgate.errors import ConfigError

__all__ = ["choose_python", "share_packages"]

_PYTHON: Final = "PYSPARK_PYTHON"
"""Spark's documentation, "Configuration", "Environment Variables"."""
_PACKAGES: Final = Path(__file__).parents[2]
"""The folder of headgate; an editable installation has it elsewhere than the others."""


def choose_python(python: str | None, *, is_local: bool) -> None:
    """Make Spark's processes run this Python. None: the environment's, or ``python3``.

    :param is_local: all processes run on this machine.
    :raises ConfigError: there is no such program here.
    """
    python = python or os.environ.get(_PYTHON) or "python3"
    if shutil.which(python) is None:
        raise ConfigError(
            f"the driver cannot run {python}, the Python of Spark's processes (pyspark.python in [spark], or"
            f" {_PYTHON}): it needs the same program as the executors, at the same path"
        )
    os.environ[_PYTHON] = python
    if is_local:
        os.environ["PYSPARK_DRIVER_PYTHON"] = python


def share_packages() -> None:
    """Let the Python processes that the JVM starts on this machine load this process's packages: the executors' Python
    may not have them. It has a standard library, so this one's is left out.
    """
    library, version = Path(os.__file__).parent, "{}{}".format(*sys.version_info)
    standard = library, library / "lib-dynload", library.parent / f"python{version}.zip"
    packages = [path for path in sys.path if Path(path) not in standard]
    paths = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *packages, str(_PACKAGES)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
