"""Starting Spark the way shardpiece needs it: same interpreter everywhere, quiet console, clear errors."""

import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from shardpiece.config import JobConfig
from shardpiece.errors import ConfigError, ShardpieceError, error_from_executor
from shardpiece.pipeline.java import find_java
from shardpiece.resources import conf_file

DEFAULT_MASTER = "local[*]"


def under_spark_submit() -> bool:
    """Whether spark-submit started this Python: then it has chosen the master and the JVM runs already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def lazy_session(config: JobConfig, name: str) -> Iterator[Callable[[], SparkSession]]:
    """A function that starts the command's Spark session when first called: a stage that finds bad input, or
    nothing to do, never waits for a JVM. The session is stopped at the end, also when interrupted.

    The function raises EnvironmentProblem for a missing or old Java, ConfigError when Spark does not start.
    """
    sessions: list[SparkSession] = []

    def get() -> SparkSession:
        if not sessions:
            sessions.append(_start(config, name))
        return sessions[0]

    if under_spark_submit():
        get()  # A submitted application has to have a session, whether it needs one or not.
    try:
        yield get
    finally:
        if sessions:
            # A JVM that has died is stopped already; why it died is being raised.
            with suppress(Exception):
                sessions[0].stop()
    # Reached only without an exception: nobody needs Spark's messages any more.
    if _spark_log.cache_info().currsize:
        _spark_log().unlink(missing_ok=True)
        _spark_log.cache_clear()


def _start(config: JobConfig, name: str) -> SparkSession:
    if not under_spark_submit():
        find_java()
    # Executors must run this interpreter unless told otherwise: another Python may lack pyarrow.
    if "spark.pyspark.python" not in config.spark:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"shardpiece {name}")
    # spark-submit has chosen the master, whatever the configuration says.
    master = None if under_spark_submit() else config.master or DEFAULT_MASTER
    if master:
        builder = builder.master(master)
    for key, value in {**_defaults(master), **config.spark}.items():
        builder = builder.config(key, str(value).lower() if isinstance(value, bool) else str(value))
    try:
        with _quiet_launch():
            session = builder.getOrCreate()
    except Exception as error:
        where = f"master {master}" if master else "spark-submit's master"
        raise ConfigError(f"Spark did not start with {where}: {_first_line(error)}{_log_hint()}") from error
    return session


def _defaults(master: str | None) -> dict[str, str]:
    settings = {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Batches that kernels hand out are sized by us.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.python.worker.reuse": "true",
    }
    if under_spark_submit():
        return settings
    settings["spark.ui.showConsoleProgress"] = "false"
    options = []
    log4j = conf_file("log4j2.properties")
    if log4j is not None:
        options.append(f"-Dlog4j2.configurationFile={log4j.as_uri()}")
    if master and master.startswith("local"):
        # Here the JVM hands out tasks and moves some megabytes. It would take more of the cores for compiling itself well
        # than it ever gets back.
        options.append("-XX:TieredStopAtLevel=1")
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "16",
            "spark.ui.enabled": "false",
        }
    if options:
        settings["spark.driver.extraJavaOptions"] = " ".join(options)
    return settings


@contextmanager
def _quiet_launch() -> Iterator[None]:
    """Start the JVM with its stderr in a file: the launcher and the JVM print notices that concern nobody, and real
    errors arrive as exceptions. The file is named when a job fails, and removed when the session ends well.
    SHARDPIECE_DEBUG=1 leaves everything on the console."""
    if os.environ.get("SHARDPIECE_DEBUG") or under_spark_submit():
        yield
        return
    sys.stderr.flush()
    saved = os.dup(2)
    sink = os.open(_spark_log(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(sink, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
        os.close(sink)


@cache
def _spark_log() -> Path:
    """The file of this process for Spark's messages, made when first asked for."""
    file, name = tempfile.mkstemp(prefix="shardpiece-spark-", suffix=".log")
    os.close(file)
    return Path(name)


def collect(session: SparkSession, frame: DataFrame) -> list[Row]:
    """frame.collect() in a thread, so that an interrupt reaches a main thread that can cancel the job: in the middle
    of a call to the JVM it could not."""
    outcome: list = []

    def run() -> None:
        try:
            outcome.append((frame.collect(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="spark job", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except KeyboardInterrupt:
        session.sparkContext.cancelAllJobs()
        raise
    rows, error = outcome[0]
    if error is not None:
        raise error
    return rows


# What Spark says of tasks whose Python worker, or whose executor, is gone.
_DIED = ("Python worker exited unexpectedly", "ExecutorLostFailure")


@contextmanager
def job_errors(what: str) -> Iterator[None]:
    """Turn a Spark failure into a ShardpieceError: the one an executor raised, or one line of what Spark says."""
    try:
        yield
    except ShardpieceError:
        raise
    except Exception as error:
        if not isinstance(error, PySparkException) and "py4j" not in type(error).__module__:
            raise
        known = error_from_executor(str(error))
        if known is not None:
            raise known from error
        if any(sign in str(error) for sign in _DIED):
            raise ShardpieceError(
                f"{what} failed: a worker process has died while it was at work, perhaps for lack of memory. Start the job again; "
                f"with --master 'local[*,4]' Spark itself tries tasks again{_log_hint()}"
            ) from error
        raise ShardpieceError(f"{what} failed in Spark: {_first_line(error)}{_log_hint()}") from error


def _log_hint() -> str:
    with suppress(FileNotFoundError):
        if _spark_log.cache_info().currsize and _spark_log().stat().st_size:
            return f" (Spark's own messages: {_spark_log()})"
    return " (set SHARDPIECE_DEBUG=1 for Spark's own messages)"


def _first_line(error: Exception) -> str:
    """What a Spark exception says in one line: of a Python traceback the last line, of a Java one the first."""
    lines = [line.strip().lstrip(": ") for line in str(error).splitlines() if line.strip()]
    for line in lines:
        if re.match(r"[\w.]+(Error|Exception|Interrupt|ArrowInvalid)\b", line) and not line.startswith("py4j."):
            return line[:400]
    return (lines or [type(error).__name__])[0][:400]
