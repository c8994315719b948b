"""A Spark standalone cluster on this machine, for tests."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyspark

from tests.conftest import ROOT

SPARK = Path(pyspark.__file__).parent


class Cluster:
    """A Spark standalone master and two workers on this machine, stopped by process id."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._processes: list[subprocess.Popen] = []
        self._environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1",
                             "SPARK_WORKER_DIR": str(directory / "work"), "SPARK_HOME": str(SPARK),
                             # Seven JVMs for a few seconds each: without compiling themselves well.
                             "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}  # fmt: skip
        master = self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0",
                             "--webui-port", "0")  # fmt: skip
        self.url = self._wait(master, r"Starting Spark master at (spark://\S+)")
        # Two hosts to Spark, which runs no task a second time on the host that has it. Other systems than Linux have one.
        hosts = ["127.0.0.1", "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"]
        for i in range(2):
            log = self._start(f"worker-{i}", "org.apache.spark.deploy.worker.Worker", "--host", hosts[i], "--cores",
                              "1", "--memory", "2g", "--webui-port", "0", self.url)  # fmt: skip
            self._wait(log, r"(Successfully registered with master)")

    @property
    def workers(self) -> list[int]:
        """Process ids of the two workers, whose children the executors are."""
        return [process.pid for process in self._processes[1:]]

    def _start(self, name: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        command = [str(SPARK / "bin" / "spark-class"), *arguments]
        with log.open("wb") as file:
            self._processes.append(
                subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=self._environment,
                                 start_new_session=True)
            )  # fmt: skip
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        for _ in range(300):
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.2)
        raise RuntimeError(f"{log}: no {pattern!r} in\n{log.read_text()}")

    def submit(self, job: str, *arguments: str, master: str | None = None) -> subprocess.CompletedProcess:
        command = [str(SPARK / "bin" / "spark-submit"), "--master", master or self.url, "--conf", "spark.executor.memory=1g",
                   "--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false",
                   str(ROOT / "jobs" / job), *arguments]  # fmt: skip
        # Not PYSPARK_PYTHON: executors have to get the driver's interpreter from us.
        environment = {key: value for key, value in self._environment.items() if key != "PYSPARK_PYTHON"}
        environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)

    def stop(self) -> None:
        for process in reversed(self._processes):
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
