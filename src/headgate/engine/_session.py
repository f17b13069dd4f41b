"""A Spark session for headgate, and a fast start of it.

A start takes seconds of processor time in three places: Java, Spark's Python processes, this process. They overlap, and
nothing is done twice:

1. The JVM starts before anything else is loaded (``_gateway``), with Java's classes from an archive
   (``_class_archive``).
2. Meanwhile a process loads what Spark's Python processes need, which are forked from it (``_forked_python``).
3. A thread makes the session, while this one loads what it needs, and checks the configuration.

A caller that does not need this only calls :func:`build_session`. If ``spark-submit`` has started this process, its
JVM is used, and the first step is left out (``_submitted``).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate.archives import DELTA_PACKAGE, fetch_packages
from headgate.engine._class_archive import archive_option, keep_whole_archives
from headgate.engine._forked_python import forking_python
from headgate.engine._gateway import StartedJVM
from headgate.engine._java import check_java
from headgate.engine._python import choose_python, share_packages
from headgate.engine._quiet import NoiseFilter, quiet_driver, quiet_py4j, quiet_start
from headgate.engine._settings import (
    CLASS_PATH,
    JAVA_OPTIONS,
    MEMORY,
    PYTHON,
    is_local,
    session_settings,
    without_secrets,
)
from headgate.engine._submitted import check_delta, check_submitted, is_submitted, submitted_settings
from headgate.errors import EngineError
from headgate.extras import require_extra
from headgate.files import cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["build_session", "prestart_session"]

_FEW_CORES = 4
_COMPILES_ONCE = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
_SERIAL_COLLECTOR = "-XX:+UseSerialGC"
_SMALL_HEAP = "-Xms192m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -XX:-ShrinkHeapInSteps"
_COLLECTION = "spark.cleaner.periodicGC.interval"
_COLLECTION_INTERVAL = "2min"


class _SessionSettings(NamedTuple):
    """Settings of a session."""

    conf: dict[str, str]
    secrets: dict[str, str]
    """Hadoop's secrets, under Hadoop's names: not for the JVM's command line."""
    quiet: bool


class _StartingSession:
    """A session that a thread makes.

    :param arguments: the application's name, and the user's settings.
    :raises OSError: the JVM cannot be started.
    """

    def __init__(self, arguments: tuple[str, Mapping[str, str]], settings: _SessionSettings) -> None:
        self.arguments, self._settings = arguments, settings
        self._noise = NoiseFilter() if settings.quiet else None
        self._jvm = StartedJVM(settings.conf, self._noise.writing if self._noise else 2)
        self._thread = threading.Thread(target=self._make, name="headgate-session", daemon=True)
        self._session: SparkSession | None = None
        self._ended: EngineError | None = None
        self._taken = False
        if self._noise is not None:
            self._noise.begin()
        self._thread.start()

    def take(self) -> SparkSession | None:
        """Wait for the session; None: it could not be made, or was taken before.

        :raises EngineError: there is no JVM to make it in.
        """
        self._taken = True
        self._thread.join()
        if self._ended is not None:
            raise self._ended
        session, self._session = self._session, None
        return session

    def end(self) -> None:
        """End the JVM if the session was not taken."""
        if self._taken:
            return
        quiet_py4j()  # the thread may be using it
        self._jvm.end()
        self._thread.join()
        self._jvm.forget()

    def _make(self) -> None:
        with suppress(Exception):
            try:
                self._jvm.hand_over()
            except EngineError as error:
                self._ended = error
            else:
                self._session = _make(self._settings)


_starting: _StartingSession | None = None


@contextmanager
def prestart_session(name: str, settings: Mapping[str, str], preload: str | None = None) -> Iterator[None]:
    """Start the session that :func:`build_session` returns in the block, with the same name and settings, and ``quiet``
    None.

    Failures are left to that call: it tries again, or raises ``EngineError`` if the JVM ended at its start.

    :param preload: as in :func:`build_session`.
    :raises ConfigError: there is no Java that Spark can use, or no repository has the archives.
    :raises ArchivesUnavailableError: a repository of Java archives does not answer.
    """
    global _starting  # noqa: PLW0603 - a process has one JVM
    require_extra("spark")
    if _has_jvm():
        yield
        return
    check_java()
    prepared = _prepare_settings(name, settings, quiet=None, preload=preload, writes=True)
    try:
        session = _starting = _StartingSession((name, settings), prepared)
    except OSError:
        session = None
    try:
        yield
    finally:
        _starting = None
        if session is not None:
            session.end()


def build_session(
    name: str, settings: Mapping[str, str] | None = None, *, quiet: bool | None = False, preload: str | None = None
) -> SparkSession:
    """Return the session of this process, made or taken over.

    :param name: the application's name.
    :param settings: the user's ``spark.*`` settings, which take precedence.
    :param quiet: keep Spark's log off the terminal, except errors that nothing else reports; None: unless the settings
        have a log level.
    :param preload: a function that loads what Spark's Python processes need, as ``module:name``; local ones are then
        forked from a process that has called it. None: each loads what it needs.
    :raises EngineError: the JVM that :func:`prestart_session` started has ended.
    :raises ConfigError: there is no Java that Spark can use, or not the Python that the settings name; no
        repository has the Java archives; or ``spark-submit`` has started a JVM that does not fit the settings.
    :raises ArchivesUnavailableError: a repository of Java archives does not answer.
    """
    require_extra("spark")
    if not _has_jvm():
        check_java()
    settings = settings or {}
    is_starting = _starting is not None and quiet is None and _starting.arguments == (name, settings)
    spark = _starting.take() if _starting is not None and is_starting else None
    return _make(_prepare_settings(name, settings, quiet=quiet, preload=preload)) if spark is None else spark


def _make(settings: _SessionSettings) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in settings.conf.items():
        builder = builder.config(key, value)
    with quiet_start() if settings.quiet and not _has_jvm() else nullcontext():
        spark = builder.getOrCreate()
    if settings.quiet:
        quiet_driver(spark)
    hadoop: Any = spark._jsparkSession.sparkContext().hadoopConfiguration()
    for key, value in settings.secrets.items():
        hadoop.set(key, value)
    keep_whole_archives(spark, settings.conf.get(JAVA_OPTIONS, ""))
    return spark


def _prepare_settings(
    name: str, settings: Mapping[str, str], *, quiet: bool | None, preload: str | None = None, writes: bool = False
) -> _SessionSettings:
    """Settings of a session, which with ``writes`` writes an archive of classes if there is none."""
    starts_jvm = not is_submitted()
    if starts_jvm:
        fetch_packages(settings)
    else:
        submitted = submitted_settings()
        check_submitted(submitted, settings)
        check_delta(DELTA_PACKAGE)
        settings = {**submitted, **settings}
    quiet = "spark.log.level" not in settings if quiet is None else quiet
    conf = session_settings(name, settings, quiet=quiet, starts_jvm=starts_jvm)
    if is_local(conf):
        if preload is not None and PYTHON not in settings:
            conf[PYTHON] = forking_python(preload) or sys.executable
        if starts_jvm:
            _start_sooner(conf, settings, writes=writes)
            if MEMORY not in settings:
                _return_memory(conf)
    elif starts_jvm:
        share_packages()
    choose_python(conf.get(PYTHON), is_local=is_local(conf))
    return _SessionSettings(*without_secrets(conf), quiet)


def _has_jvm() -> bool:
    if is_submitted():
        return True
    if "pyspark" not in sys.modules:
        return False
    from pyspark import SparkContext  # waits if another thread is loading it

    return SparkContext._gateway is not None


def _start_sooner(conf: dict[str, str], user_settings: Mapping[str, str], *, writes: bool) -> None:
    """Add settings that make a local session's start shorter.

    On few cores Java's second compiler and its concurrent collector take the time that a start needs: without them, a
    run's first change comes after 6 s of the JVM's processor time instead of 14. A first snapshot of 1.5 million rows
    takes 1 to 5 % longer: Python processes decode and write its rows. Without the second compiler Java has a fifth of
    its usual room for code, which the classes that Spark generates fill within some twenty MERGEs: hence the size.
    """
    named = conf.get(JAVA_OPTIONS, "")
    options = [named]
    if (os.cpu_count() or 1) <= _FEW_CORES:
        options.insert(0, _COMPILES_ONCE)
        if MEMORY not in user_settings and "GC" not in named:
            options.insert(0, _SERIAL_COLLECTOR)
    jars = conf.get(CLASS_PATH, "").split(os.pathsep)
    archive = archive_option(cache_folder("classes"), jars, named, conf[MEMORY], writes=writes)
    conf[JAVA_OPTIONS] = " ".join(filter(None, (*options, archive)))


def _return_memory(conf: dict[str, str]) -> None:
    """Add settings by which a JVM with a heap of headgate's size returns memory to the system; the user's win.

    A heap grows while Spark's writers have rows in it, up to its limit. Afterwards 60 MB of it are
    live, but Java neither collects the rest before the heap is full, nor returns it. Spark asks for a collection now
    and then, by default each half hour. One takes 0.1 s of processor time, and leaves the initial size: more than a
    batch of small changes needs. A heap whose size the user has set may hold much more, so it is left alone.
    """
    conf.setdefault(_COLLECTION, _COLLECTION_INTERVAL)
    conf[JAVA_OPTIONS] = " ".join(filter(None, (_SMALL_HEAP, conf.get(JAVA_OPTIONS, ""))))
