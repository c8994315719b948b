"""The exceptions shardpiece raises, and how they travel from executors back to the driver.

Every message is written for the user: which file, row or key, what is wrong, what to do. ``exit_code`` is what
the command line returns: 2 for usage and configuration, 1 for a job that failed while running.
"""

import json


class ShardpieceError(Exception):
    """Base of every error shardpiece raises on purpose."""

    exit_code = 1


class ConfigError(ShardpieceError, ValueError):
    """A setting, flag, path or environment that cannot work; found before the job starts wherever possible."""

    exit_code = 2


class InputError(ConfigError):
    """The input as listed cannot be used: nothing matches, a column is missing, a footer is unreadable."""


class OutputError(ConfigError):
    """The output cannot be written, or holds something else."""


class EnvironmentProblem(ConfigError):
    """Java, Python or a file system is missing or too old."""


class FormatError(ConfigError):
    """An artifact (tokenizer, word table, manifest) that cannot be read, or read exactly."""


class TrainingError(ShardpieceError):
    """Training cannot start or go on: not enough memory, a vocabulary that cannot be reached."""


class DataError(ShardpieceError):
    """A document that breaks the configured policy; names the file and the row."""


class DocumentError(ShardpieceError):
    """A document that breaks the configured policy, by its index in a batch; becomes a DataError once the
    reader has added the file."""

    def __init__(self, index: int, problem: str):
        super().__init__(f"document {index}: {problem}")
        self.index = index
        self.problem = problem


class ShardpieceWarning(UserWarning):
    """Something worth knowing that does not stop the job."""


def one_line(error: BaseException) -> str:
    """An error for people: our own messages as they are, others with their type, on one line of bounded length."""
    text = " ".join(str(error).split())[:400]
    if isinstance(error, ShardpieceError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_MARK = "shardpiece-error:"
_KINDS = {
    kind.__name__: kind
    for kind in (
        ShardpieceError,
        ConfigError,
        InputError,
        OutputError,
        EnvironmentProblem,
        FormatError,
        TrainingError,
        DataError,
    )
}


class ExecutorError(ShardpieceError):
    """Carries a ShardpieceError through Spark, which keeps only the text of a Python exception."""

    def __init__(self, error: ShardpieceError):
        kind = type(error).__name__
        payload = json.dumps({"kind": kind if kind in _KINDS else "ShardpieceError", "message": str(error)})
        super().__init__(f"{_MARK}{payload}:end")


def error_from_executor(text: str) -> ShardpieceError | None:
    """Find the error that an executor wrapped in ExecutorError inside a Spark exception's text, or None."""
    start = text.find(_MARK + "{")
    if start < 0:
        return None
    start += len(_MARK)
    try:
        payload, _ = json.JSONDecoder().raw_decode(text, start)
    except ValueError:
        return None
    return _KINDS.get(payload["kind"], ShardpieceError)(payload["message"])
