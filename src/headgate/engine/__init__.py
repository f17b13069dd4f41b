"""Spark's local processes: how a session's JVM and Python processes start, end and fail.

A start takes seconds of processor time, most of them for constant work. So this work is stored (Java's classes:
``_class_archive``), done once for all processes (Python's modules: ``_forked_python``), skipped (``_session``), or
started before anything else (:func:`prestart_session`).
"""

from headgate.engine._class_archive import store_class_archive
from headgate.engine._failures import end_session, find_error, jvm_ended, spark_failure
from headgate.engine._java import check_java, java_home, java_release
from headgate.engine._session import build_session, prestart_session
from headgate.engine._settings import is_local, is_secret
from headgate.engine._submitted import is_submitted

__all__ = [
    "build_session",
    "check_java",
    "end_session",
    "find_error",
    "is_local",
    "is_secret",
    "is_submitted",
    "java_home",
    "java_release",
    "jvm_ended",
    "prestart_session",
    "spark_failure",
    "store_class_archive",
]
