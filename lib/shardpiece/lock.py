"""The lock of an output directory: one run writes there at a time.

``_lock.json`` is made exclusively and says who holds it: host, process and its start, a token, and the time of the last
heartbeat. A lock whose process has ended on this machine is taken over at once, one of another machine when its heartbeat
is older than ``STALE_SECONDS``; nobody can tell sooner whether that machine is gone. It is never listed in a manifest.

How exclusive that is depends on the store. Local file systems: a hard link makes the file with its content, ``flock`` guards
every later change. S3: conditional requests (If-None-Match, If-Match). Other object stores: their drivers make the
object exclusively (Google, Azure); taking a lock over is not conditional there, so the content is read back after a while.
"""

import contextlib
import fcntl
import json
import os
import platform
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from shardpiece import storage
from shardpiece.errors import OutputError

LOCK = "_lock.json"
HEARTBEAT_SECONDS = 30.0
STALE_SECONDS = 300.0
_SETTLE_SECONDS = 2.0
_ATTEMPTS = 20


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. ``machine``: this boot of the host and its process ids, in which ``pid`` and ``process_started``
    mean something; times are seconds since 1970."""

    what: str
    host: str
    machine: str
    pid: int
    process_started: str
    token: str
    since: float
    heartbeat: float

    @classmethod
    def this_process(cls, what: str) -> "Holder":
        now = time.time()
        pid = os.getpid()
        return cls(what, platform.node(), _machine(), pid, _process_started(pid) or "", uuid.uuid4().hex, now, now)

    @property
    def gone(self) -> bool:
        """Whether the lock may be taken over."""
        if self.machine == _machine():
            return _process_started(self.pid) != self.process_started
        return time.time() - self.heartbeat > STALE_SECONDS

    def describe(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        age = max(0, round(time.time() - self.heartbeat))
        return f"{self.what}, process {self.pid} on {self.host}, since {since} (last heartbeat {age} s ago)"


class RunLock:
    """A lock that is held; ``locked`` makes it."""

    def __init__(self, directory: str, holder: Holder):
        self.directory = directory
        self._path = storage.join(directory, LOCK)
        self._holder = holder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lock of {directory}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises OutputError when another run has taken the lock over: this one was thought to be gone."""
        found = read_lock(self.directory)
        if found is None or found.token != self._holder.token:
            by = f" by {found.describe()}" if found is not None else ""
            raise OutputError(
                f"{self.directory}: this run's lock was taken over or broken{by}; nothing was finished here"
            )

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
        # What cannot be removed now is taken over later: this process will have ended.
        with contextlib.suppress(OSError):
            _change(self._path, self._holder.token, None)
        _remove_if_empty(self.directory)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            # A store that does not answer now may do so at the next beat; ``check`` finds out who holds the lock.
            with contextlib.suppress(Exception):
                _change(self._path, self._holder.token, replace(self._holder, heartbeat=time.time()))


@contextmanager
def locked(directory: str, what: str) -> Iterator[RunLock]:
    """Hold the lock of ``directory``, which is made; ``what`` is the run in others' messages.

    Raises OutputError that names the holder when there is another one, or when the lock cannot be written.
    """
    holder = Holder.this_process(what)
    try:
        _acquire(directory, holder)
    except PermissionError as error:
        raise OutputError(f"{directory}: its lock cannot be written ({error.strerror or error})") from None
    except OSError as error:
        raise OutputError(f"{directory}: cannot be locked ({error.strerror or error})") from error
    lock = RunLock(directory, holder)
    try:
        yield lock
    finally:
        lock.release()


def read_lock(directory: str) -> Holder | None:
    """Who holds the lock of ``directory``, None for nobody. Raises OutputError when the file cannot be understood."""
    path = storage.join(directory, LOCK)
    for attempt in range(_ATTEMPTS):
        try:
            return _holder(storage.read_bytes(path))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):
            # Where there are no hard links, a lock may be there for a moment before its content.
            if attempt + 1 < _ATTEMPTS:
                time.sleep(0.05)
    raise OutputError(f"{path}: damaged. If no run writes there: {_break(directory)}")


def break_lock(directory: str) -> None:
    """Remove the lock, whoever holds it."""
    storage.remove(storage.join(directory, LOCK))


def in_use(directory: str, holder: Holder) -> OutputError:
    return OutputError(
        f"{directory}: in use by {holder.describe()}. Wait for it or stop it. A run that was killed is noticed at once on "
        f"its own machine, elsewhere {STALE_SECONDS / 60:.0f} minutes after its last heartbeat; if you know that it is "
        f"gone: {_break(directory)}"
    )


def _break(directory: str) -> str:
    return f"shardpiece clean {directory} --break-lock"


def _acquire(directory: str, holder: Holder) -> None:
    path = storage.join(directory, LOCK)
    for _ in range(_ATTEMPTS):
        if _create(path, holder):
            return
        found = read_lock(directory)
        if found is None:
            continue
        if not found.gone:
            raise in_use(directory, found)
        if _change(path, found.token, holder):
            if not _exact(path):
                time.sleep(_SETTLE_SECONDS)
            now = read_lock(directory)
            if now is not None and now.token == holder.token:
                return
    raise OutputError(f"{directory}: cannot be locked: others take its lock all the time. Try again")


def _holder(raw: bytes) -> Holder:
    return Holder(**json.loads(raw))


def _spelled(holder: Holder) -> bytes:
    return storage.pretty_json(asdict(holder))


def _create(path: str, holder: Holder) -> bool:
    """Make the lock; False when there is one."""
    data = _spelled(holder)
    fs, inner = storage.filesystem(path)
    if storage.is_local(path):
        os.makedirs(os.path.dirname(inner), exist_ok=True)
        return _create_local(inner, data)
    try:
        fs.pipe_file(inner, data, mode="create")
    except FileExistsError:
        return False
    except OSError as error:
        if _lost_race(error):
            return False
        raise
    return True


def _create_local(path: str, data: bytes) -> bool:
    temporary = f"{path}.{uuid.uuid4().hex[:12]}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links
            try:
                descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                return False
            with open(descriptor, "wb") as file:
                file.write(data)
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _change(path: str, token: str, to: Holder | None) -> bool:
    """Replace (or, without ``to``, remove) the lock that has this token; False when it is another one by now."""
    fs, inner = storage.filesystem(path)
    if storage.is_local(path):
        return _change_local(inner, token, to)
    try:
        fs.invalidate_cache()
        condition = {"IfMatch": fs.info(inner)["ETag"]} if _exact(path) else {}
        if _holder(fs.cat_file(inner)).token != token:
            return False
        if to is None:
            fs.rm_file(inner)
        else:
            fs.pipe_file(inner, _spelled(to), **condition)
    except FileNotFoundError:
        return False
    except OSError as error:
        if _lost_race(error):
            return False
        raise
    return True


def _change_local(path: str, token: str, to: Holder | None) -> bool:
    with _guarded(path) as raw:
        try:
            if raw is None or _holder(raw).token != token:
                return False
        except (ValueError, TypeError):
            return False
        if to is None:
            os.unlink(path)
            return True
        temporary = f"{path}.{uuid.uuid4().hex[:12]}.tmp"
        try:
            with open(temporary, "xb") as file:
                file.write(_spelled(to))
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        return True


@contextmanager
def _guarded(path: str) -> Iterator[bytes | None]:
    """The content of a local lock file, which nobody changes meanwhile; None when there is no file."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR)  # NFS wants a writable file for an exclusive flock
        except FileNotFoundError:
            yield None
            return
        try:
            with contextlib.suppress(OSError):  # a file system without flock: what is left is the check of the token
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                same = os.path.samestat(os.fstat(descriptor), os.stat(path))
            except FileNotFoundError:
                same = False
            if same:
                yield os.read(descriptor, 1 << 16)
                return
        finally:
            os.close(descriptor)


def _exact(path: str) -> bool:
    """Whether a change of the lock is conditional on what it was."""
    fs, _ = storage.filesystem(path)
    protocols = fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)
    return storage.is_local(path) or "s3" in protocols


def _lost_race(error: OSError) -> bool:
    """What S3 answers when a condition does not hold (412), or two conditional requests meet (409)."""
    return any(name in str(error) for name in ("PreconditionFailed", "pre-conditions", "ConditionalRequestConflict"))


def _remove_if_empty(directory: str) -> None:
    """A run that was refused after it had taken the lock leaves no directory behind."""
    if storage.is_local(directory):
        with contextlib.suppress(OSError):
            os.rmdir(storage.filesystem(directory)[1])


def _machine() -> str:
    """Equal for processes that see each other's ids: the host, since it was started, and its space of process ids."""
    parts = [platform.node()]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        parts.append(file.read().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


def _process_started(pid: int) -> str | None:
    """When the process began, as its system says it; None when it has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()  # the name before it may hold anything
    except (FileNotFoundError, ProcessLookupError):
        if os.path.isdir("/proc/self"):
            return None
        found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return found.stdout.strip() or None
    return None if fields[0] in "ZX" else fields[19]
