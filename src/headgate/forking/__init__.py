"""Python processes for Spark that are forked from one, which has loaded what they need.

Spark starts a Python process for each kind of work: four to learn what the source is, one that plans batches, two that
make plans for tasks, one that forks workers. Each would load numba, pyarrow, pandas, PySpark and headgate again, and
set up numba's loader: one to two seconds of a core, eight times before the first change is there.

- The **fork server** (``_server``) is a process that the driver starts before the JVM. It loads the modules once, while
  the JVM starts, and then forks a process for each that asks.
- The **launcher** (``_launcher``) is what Spark starts as its Python. It hands its arguments, environment and standard
  streams to the server, and stays until the forked process ends, so that Spark can wait for it and end it. If the
  server does not answer or is unlike what is asked for, the launcher becomes a plain Python: slower, and the same.

Forking is safe as long as the server has no thread that holds a lock. What is loaded starts none but those of jemalloc
and of OpenBLAS, both of which take care of forks themselves; pyarrow's and numba's own pools are not begun.

If the driver ends, the server's standard input does, and the server goes on until the last forked process has ended:
those end when Spark's JVM does, as they would without the server.
"""

from headgate.forking._driver import forking_python

__all__ = ["forking_python"]
