"""A private Spark cluster: a master and workers as processes of this machine, from the installed ``pyspark``.

Spark's documentation: "Spark Standalone Mode". Executors run this Python with the same modules. On a *bare* cluster
they have only what Spark ships to them.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from headgate_testing._jars import spark_home
from headgate_testing._owned import OwnedProcesses
from headgate_testing._ports import free_port

__all__ = ["SparkCluster"]

_HOST = "127.0.0.1"
"""Of the master, and of workers unless others are named."""
FOLDER_PREFIX = "headgate-spark-"
_REGISTERED = "Successfully registered with master"
"""What a worker then writes to its log."""


class SparkCluster(OwnedProcesses):
    """A running cluster on free ports of the loopback interface.

    :param workers: how many, with a core each.
    :param memory_mb: of each worker; an executor of Spark's default size takes 1024.
    :param bare: executors find neither the modules of this Python nor kernels that it has compiled.
    :param hosts: addresses of the loopback interface, which the workers get in turn. Spark starts a second attempt of a
        task only on another host than that of the first.
    """

    def __init__(self, workers: int, memory_mb: int, *, bare: bool, hosts: Sequence[str]) -> None:
        super().__init__(FOLDER_PREFIX)
        self._port, self._bare, self._hosts = free_port(), bare, hosts
        with self.stop_on_failure():
            address = ["--port", str(self._port), "--webui-port", str(free_port())]
            self._start("master", "org.apache.spark.deploy.master.Master", _HOST, self._accepts_connections, *address)
            self._memory_mb, self._workers = memory_mb, list[subprocess.Popen[bytes]]()
            for _ in range(workers):
                self.start_worker()

    @classmethod
    def start(
        cls, workers: int = 2, memory_mb: int = 1536, *, bare: bool = False, hosts: Sequence[str] = (_HOST,)
    ) -> SparkCluster:
        """Start a master, and workers that have registered with it.

        :raises ConfigError: ``pyspark`` is not installed.
        :raises ConnectError: a process did not start.
        """
        return cls(workers, memory_mb, bare=bare, hosts=hosts)

    @property
    def master(self) -> str:
        """``spark://127.0.0.1:PORT``."""
        return f"spark://{_HOST}:{self._port}"

    def start_worker(self) -> None:
        """Start one more worker, and wait until the master knows it.

        :raises ConnectError: it did not start.
        """
        name = f"worker-{len(self._workers)}"
        work = self.folder / name
        work.mkdir()
        size = ["--cores", "1", "--memory", f"{self._memory_mb}m", "--work-dir", str(work)]
        page = ["--webui-port", str(free_port())]
        worker, host = "org.apache.spark.deploy.worker.Worker", self._hosts[len(self._workers) % len(self._hosts)]
        self._workers.append(
            self._start(name, worker, host, lambda: self._has_registered(name), *size, *page, self.master)
        )

    def kill_worker(self, number: int) -> None:
        """Kill a worker (SIGKILL). Its executors then end by themselves.

        :param number: from 0, in the order of their starts.
        """
        self.end(self._workers[number])

    def _start(
        self, name: str, java_class: str, host: str, answers: Callable[[], bool], *arguments: str
    ) -> subprocess.Popen[bytes]:
        modules = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYSPARK_PYTHON": sys.executable}
        bare = {"PYTHONPATH": "", "PYSPARK_PYTHON": "", "NUMBA_CACHE_DIR": ""}
        env = {
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": host,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            **(bare if self._bare else modules),
        }
        command = [str(spark_home() / "bin/spark-class"), java_class, "--host", host, *arguments]
        return self.launch(name, command, answers, env)

    def _has_registered(self, worker: str) -> bool:
        return _REGISTERED in self.log_file(worker).read_text(errors="replace")

    def _accepts_connections(self) -> bool:
        try:
            with socket.create_connection((_HOST, self._port), 1):
                return True
        except OSError:
            return False

    def __repr__(self) -> str:
        return f"<SparkCluster {self.master}>"
