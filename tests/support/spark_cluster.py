"""A standalone Spark cluster, and a Spark Connect server on it."""

import os
import signal
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from tests.support.ports import accepts, lasting_ports, wait_until

HOME = Path(pyspark.__file__).parent
_STARTED_SECONDS = 120
_DEPLOY = "org.apache.spark.deploy"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkCluster:
    """A master and its workers.

    Args:
        url: of the master.
        workers: their processes.
    """

    def __init__(self, url, workers):
        self.url = url
        self.workers = workers

    def kill_worker(self):
        """kill -9 of a worker and its executors."""
        worker = self.workers.pop()
        for pid in (worker.pid, *_children(worker.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        worker.wait(60)


@contextmanager
def spark_cluster(folder, workers=2, cores=1, hosts=("127.0.0.1",)):
    """Start the processes, with their files in `folder`; they do not know this checkout.

    Args:
        folder: for their files.
        workers: how many.
        cores: of each worker, by its own account.
        hosts: of the workers, in turn. Spark speculates only on a host without the task's first
            copy.
    """
    port = lasting_ports(1)[0]
    url = f"spark://127.0.0.1:{port}"
    ui = ["--webui-port", "0"]
    commands = [["master.Master", "--host", "127.0.0.1", "--port", str(port), *ui]]
    commands += [
        ["worker.Worker", "--host", hosts[number % len(hosts)], "--cores", str(cores),
         "--memory", "1g", *ui,
         "--work-dir", str(folder / f"worker-{number}"), url]
        for number in range(workers)
    ]  # fmt: skip
    log = folder / "cluster.log"
    processes = []
    try:
        for name, *arguments in commands:
            command = [str(HOME / "bin" / "spark-class"), f"{_DEPLOY}.{name}", *arguments]
            processes.append(_started(command, log))
        wait_until(
            lambda: log.read_text().count("Registering worker") == workers,
            "all workers registered",
            _STARTED_SECONDS,
        )
        yield SparkCluster(url, processes[1:])
    finally:
        for process in processes:
            process.kill()
            process.wait(60)


@contextmanager
def connect_server(master, folder, python):
    """Start a Spark Connect server; yield its URL.

    Args:
        master: of Spark, such as a cluster's URL.
        folder: for its files.
        python: of the server and of the executors.
    """
    port = lasting_ports(1)[0]
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.local.dir": folder / "local",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.ui.enabled": "false",
    }
    command = [str(HOME / "bin" / "spark-submit"), "--class", _CONNECT, "--master", master]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    process = _started(command, folder / "connect.log", PYSPARK_PYTHON=str(python))
    try:
        wait_until(lambda: accepts(port), "the Spark Connect server listens", _STARTED_SECONDS)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def _started(command, log, **more):
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **more}
    environment.pop("PYTHONPATH", None)
    with log.open("ab") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=log.parent)


def _children(pid):
    """All processes that a process has started, directly or not."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found
