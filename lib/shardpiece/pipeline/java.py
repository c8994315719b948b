"""Finding the Java that Spark will run on, before Spark tries."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from shardpiece.errors import EnvironmentProblem

MINIMUM = 17
_ADVICE = (
    f"Spark 4 needs Java {MINIMUM} or newer: install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put java on PATH or set JAVA_HOME"
)


def find_java() -> tuple[str, int]:
    """The java command Spark will start and its major version.

    Raises EnvironmentProblem when there is none, it does not run, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None:
        raise EnvironmentProblem(f"no Java found (JAVA_HOME is not set and java is not on PATH). {_ADVICE}")
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        where = f"JAVA_HOME={home}" if home else command
        raise EnvironmentProblem(f"{where}: java does not run ({error}). {_ADVICE}") from None
    version = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode or not version:
        raise EnvironmentProblem(f"{command} -version did not print a version. {_ADVICE}")
    major = int(version[1]) if version[1] != "1" else int(version[2] or 0)
    if major < MINIMUM:
        raise EnvironmentProblem(f"{command} is Java {major}. {_ADVICE}")
    return command, major
