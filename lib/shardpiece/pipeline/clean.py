"""Removing what an output directory holds and its manifest does not list.

Killed runs, interrupted uploads and attempts of tasks that nobody waited for leave files. Readers never see them, and the
next run with these settings goes on from them or removes them; this is for when there is none. Only directories with our
manifest or mark are touched, and in them only names that runs write. What an unfinished run has done stays, unless
``unfinished``: it is what the run goes on from.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from shardpiece import storage
from shardpiece.errors import FormatError, OutputError
from shardpiece.lock import LOCK, break_lock, in_use, locked, read_lock
from shardpiece.pipeline import count, train
from shardpiece.pipeline.checkpoint import CHECKPOINT_FILE
from shardpiece.pipeline.encode import task as encode
from shardpiece.pipeline.outputs import STARTED, OutputKind
from shardpiece.shards.manifest import JOURNAL

KINDS = (count.OUTPUT, train.OUTPUT, encode.OUTPUT)
_TEMPORARY = r"\.[0-9a-f]{12}\.tmp"
_PROBES = rf"\.shardpiece-[0-9a-f]{{12}}(?:{_TEMPORARY})?|(?:{re.escape(LOCK)}|{re.escape(STARTED)}){_TEMPORARY}"


@dataclass(frozen=True)
class Cleaned:
    """``removed``: name → bytes of what was, or would be, removed; ``others``: names that no run writes, which stay;
    ``unfinished``: how many files stay because an unfinished run goes on from them; ``lock``: who held a lock that was
    removed."""

    removed: dict[str, int]
    others: list[str]
    unfinished: int
    lock: str | None


def clean(directory: str, dry_run: bool = False, unfinished: bool = False, force: bool = False) -> Cleaned:
    """``force``: remove a lock whoever holds it; without it the lock of a run that may be alive is an OutputError.

    Raises OutputError for a directory that is not ours too; then nothing was touched.
    """
    directory = storage.absolute(directory)
    kind = _kind(directory)
    with _alone(directory, dry_run, force) as lock:
        if kind is None:
            return Cleaned({}, [], 0, lock)
        files = storage.tree(directory)
        kept = {kind.manifest, STARTED, LOCK}
        if kind.manifest in files:
            manifest = kind.read(directory)
            if _started_key(directory) == kind.key(manifest):  # killed after its manifest was written
                kept.discard(STARTED)
            kept |= {file["name"] for file in kind.files(manifest)}
            kept |= _journal(files, {shard["name"] for shard in manifest.get("shards", ())})
        resumable = _resumable(kind, directory, files) - kept if STARTED in files else set()
        if unfinished:
            kept.discard(STARTED)
        else:
            kept |= resumable
        ours = re.compile(
            rf"(?:{kind.names}|{re.escape(kind.manifest)})(?:{_TEMPORARY})?|{_PROBES}|{re.escape(STARTED)}"
        )
        removed = {name: size for name, size in files.items() if name not in kept and ours.fullmatch(name)}
        others = [name for name in files if name not in kept and not ours.fullmatch(name)]
        if not dry_run:
            # The mark goes last: a directory without it and without manifest would be nobody's.
            for name in sorted(removed, key=lambda name: name == STARTED):
                storage.remove(storage.join(directory, name))
            storage.remove_empty(directory)
        return Cleaned(removed, others, 0 if unfinished else len(resumable), lock)


def _kind(directory: str) -> OutputKind | None:
    """Whose output this is; None when there is nothing of a run but a lock."""
    names = storage.list_names(directory)
    try:
        for kind in KINDS:
            if kind.manifest in names:
                kind.read(directory)
                return kind
        if STARTED in names:
            writing = storage.read_json(storage.join(directory, STARTED)).get("writing")
            for kind in KINDS:
                if kind.what == writing:
                    return kind
    except FormatError as error:
        raise OutputError(f"{error}. Nothing was removed: this directory may be somebody else's") from None
    if LOCK in names:
        return None
    raise OutputError(
        f"{directory}: holds neither the manifest of a finished run nor the mark of an unfinished one; nothing was removed"
    )


@contextmanager
def _alone(directory: str, dry_run: bool, force: bool) -> Iterator[str | None]:
    """Hold the directory's lock; gives who held the one that had to go."""
    if force:
        try:
            found = read_lock(directory)
            told = None if found is None else found.describe()
        except OutputError:
            told = "a damaged file"
        if told is not None and not dry_run:
            break_lock(directory)
    else:
        found = read_lock(directory)
        if found is not None and not found.gone:
            raise in_use(directory, found)
        told = None if found is None else found.describe()
    with nullcontext() if dry_run else locked(directory, "shardpiece clean"):
        yield told


def _resumable(kind: OutputKind, directory: str, files: dict[str, int]) -> set[str]:
    """The files that the unfinished run would go on from."""
    if kind is train.OUTPUT:
        return {name for name in files if name == CHECKPOINT_FILE or name.startswith(f"{train.PARTIAL}/")}
    kept = set()
    key = _started_key(directory)
    for name in files:
        if name.startswith(f"{JOURNAL}/") and name.endswith(".json"):
            try:
                entry = storage.read_json(storage.join(directory, name))
            except FormatError:
                continue
            if entry.get("key") == key:
                kept |= {file["name"] for file in entry["files"]} | _journal(files, {entry["name"]})
    return kept


def _started_key(directory: str) -> str | None:
    try:
        return storage.read_json(storage.join(directory, STARTED)).get("key")
    except FormatError:
        return None


def _journal(files: dict[str, int], shards: set[str]) -> set[str]:
    """What the journal has of these shards: the entry, statistics, tails."""
    prefix = f"{JOURNAL}/"
    return {name for name in files if name.startswith(prefix) and name.removeprefix(prefix).split(".")[0] in shards
            and not re.search(_TEMPORARY, name)}  # fmt: skip
