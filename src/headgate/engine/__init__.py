"""Spark's own processes, of this machine: a session's JVM and Python processes, how they start, end and fail.

A start takes seconds of processor time, most of them for things that never change. So they are not done again
(classes of Java: ``_class_archive``), done once for all processes (modules of Python: ``_forked_python``), left out
(``_session``), or begun before anything else (:func:`begun_session`).
"""

from headgate.engine._class_archive import keep_classes
from headgate.engine._failures import end_session, find_error, jvm_ended, spark_failure
from headgate.engine._session import begun_session, build_session

__all__ = ["begun_session", "build_session", "end_session", "find_error", "jvm_ended", "keep_classes", "spark_failure"]
