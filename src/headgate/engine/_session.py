"""A Spark session that fits headgate, and a start of it that is short.

A start takes seconds of processor time in three places: Java's, Python's for Spark's Python processes, Python's for
this one. They overlap, and nothing is done twice:

1. the JVM begins before anything else is loaded (``_gateway``), with Java's classes from an archive
   (``_class_archive``);
2. meanwhile this process loads what it and Spark's Python processes need, and forks the process that these are forked
   from (``_forked_python``);
3. a thread makes the session, while this one goes on to check the configuration.

A caller that has no use for this calls :func:`build_session` alone.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.engine._class_archive import archive_option, await_archive
from headgate.engine._forked_python import fork_server, forking_python
from headgate.engine._gateway import StartedJVM
from headgate.engine._quiet import NoiseFilter, quiet_driver, quiet_py4j, quiet_start
from headgate.engine._settings import (
    CLASS_PATH,
    JAVA_OPTIONS,
    MEMORY,
    PYTHON,
    cache_dir,
    is_local,
    session_settings,
    without_secrets,
)
from headgate.errors import EngineError
from headgate.extras import needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["begun_session", "build_session"]

_PRELOAD = "headgate.sinks._preload:preload"
_FEW_CORES = 4
_COMPILES_ONCE = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
_COLLECTS_ALONE = "-XX:+UseSerialGC"


class _Wanted(NamedTuple):
    """What a session is made of."""

    conf: dict[str, str]
    secrets: dict[str, str]
    """Of Hadoop, under its own names: not for the JVM's command line."""
    quiet: bool


class _Begun:
    """A session that is being made by a thread.

    :param asked: the application's name, and the user's settings.
    :raises OSError: the JVM cannot be started.
    """

    def __init__(self, asked: tuple[str, Mapping[str, str]], wanted: _Wanted) -> None:
        self.asked, self._wanted = asked, wanted
        self._noise = NoiseFilter() if wanted.quiet else None
        self._jvm = StartedJVM(wanted.conf, self._noise.writing if self._noise else 2)
        self._thread = threading.Thread(target=self._make, name="headgate-session", daemon=True)
        self._session: SparkSession | None = None
        self._ended: EngineError | None = None
        self._taken = False

    def leave(self) -> None:
        """In a fork of this process: let go of what is this one's."""
        self._jvm.leave()
        if self._noise is not None:
            self._noise.leave()

    def go_on(self) -> None:
        """Have the thread begin."""
        if self._noise is not None:
            self._noise.begin()
        self._thread.start()

    def take(self) -> SparkSession | None:
        """The session, when it is made; None: it could not be, or was taken before.

        :raises EngineError: there is no JVM to make it in.
        """
        self._taken = True
        self._thread.join()
        if self._ended is not None:
            raise self._ended
        session, self._session = self._session, None
        return session

    def end(self) -> None:
        """If the session was not asked for, end the JVM."""
        if self._taken:
            return
        quiet_py4j()  # the thread may be talking to it
        self._jvm.end()
        if self._thread.ident is not None:
            self._thread.join()
        self._jvm.forget()

    def _make(self) -> None:
        with suppress(Exception):
            try:
                self._jvm.hand_over()
            except EngineError as error:
                self._ended = error
            else:
                self._session = _make(self._wanted)


_begun: _Begun | None = None


@contextmanager
def begun_session(name: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Begin the session that :func:`build_session` with the same arguments gives in the block, and load what this
    process will need.

    A failure is left to that call, which tries again.
    """
    global _begun  # noqa: PLW0603 - a process has one JVM
    needs("spark")
    if _has_jvm():
        yield
        return
    forks = is_local(session_settings(name, settings)) and PYTHON not in settings
    make_server = fork_server(_PRELOAD) if forks else None
    wanted = _wanted(name, settings, quiet=None, writes=True)
    try:
        begun = _begun = _Begun((name, settings), wanted)
    except OSError:
        begun = None
    try:
        if make_server is not None:
            make_server(begun.leave if begun is not None else _nothing)
        if begun is not None:
            begun.go_on()
        yield
    finally:
        _begun = None
        if begun is not None:
            begun.end()


def build_session(name: str, settings: Mapping[str, str] | None = None, *, quiet: bool | None = False) -> SparkSession:
    """The session of this process, made or taken over.

    :param name: the application's name.
    :param settings: ``spark.*`` settings of the user; they win.
    :param quiet: keep Spark's log off the terminal, but for errors that nothing else reports; None: unless the settings
        say how much it is to log.
    """
    needs("spark")
    settings = settings or {}
    is_begun = _begun is not None and quiet is None and _begun.asked == (name, settings)
    spark = _begun.take() if _begun is not None and is_begun else None
    return _make(_wanted(name, settings, quiet=quiet)) if spark is None else spark


def _make(wanted: _Wanted) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in wanted.conf.items():
        builder = builder.config(key, value)
    with quiet_start() if wanted.quiet and not _has_jvm() else nullcontext():
        spark = builder.getOrCreate()
    if wanted.quiet:
        quiet_driver(spark)
    hadoop: Any = spark._jsparkSession.sparkContext().hadoopConfiguration()
    for key, value in wanted.secrets.items():
        hadoop.set(key, value)
    await_archive(spark, wanted.conf.get(JAVA_OPTIONS, ""))
    return spark


def _wanted(name: str, settings: Mapping[str, str], *, quiet: bool | None, writes: bool = False) -> _Wanted:
    """:param writes: write an archive of classes if there is none."""
    quiet = "spark.log.level" not in settings if quiet is None else quiet
    conf = session_settings(name, settings, quiet=quiet)
    if is_local(conf):
        _start_sooner(conf, settings, writes=writes)
    return _Wanted(*without_secrets(conf), quiet)


def _has_jvm() -> bool:
    loaded = sys.modules.get("pyspark")
    return loaded is not None and loaded.SparkContext._gateway is not None


def _nothing() -> None:
    pass


def _start_sooner(conf: dict[str, str], given: Mapping[str, str], *, writes: bool) -> None:
    """Settings that make a local session's start shorter.

    On few cores Java's second compiler and its concurrent collector take what a start needs: a run's first change comes
    after 6 s of the JVM's processor time instead of 14. A first reading of 1.5 million rows takes 1 to 5 % longer: rows
    are decoded and written by Python's processes. Without the second compiler Java keeps a fifth of its usual room for
    code, which the classes that Spark generates fill within some twenty MERGEs: hence the size.
    """
    if conf[PYTHON] == sys.executable:
        python = forking_python(_PRELOAD) or sys.executable
        conf[PYTHON] = os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
    named = conf.get(JAVA_OPTIONS, "")
    options = [named]
    if (os.cpu_count() or 1) <= _FEW_CORES:
        options.insert(0, _COMPILES_ONCE)
        if MEMORY not in given and "GC" not in named:
            options.insert(0, _COLLECTS_ALONE)
    jars = conf.get(CLASS_PATH, "").split(os.pathsep)
    archive = archive_option(cache_dir() / "classes", jars, named, conf[MEMORY], writes=writes)
    conf[JAVA_OPTIONS] = " ".join(filter(None, (*options, archive)))
