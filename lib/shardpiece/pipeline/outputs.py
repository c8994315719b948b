"""A stage's output directory: done and unchanged, unfinished, or in the way.

Before anything is written, ``_started.json`` marks the directory as ours and holds the key of the plan; the manifest,
written last, replaces it. Only a directory with one of the two is ever cleared, and only of names that the stage writes.
All of that happens under the directory's lock.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from shardpiece import storage
from shardpiece.corpus.base import InputFile
from shardpiece.corpus.sources import inside
from shardpiece.errors import FormatError, OutputError
from shardpiece.lock import LOCK, RunLock, locked
from shardpiece.pipeline.progress import log

STARTED = "_started.json"


@dataclass(frozen=True)
class OutputKind:
    """``what``: its name in messages; ``manifest``: the file that is written last; ``names``: regular expression of
    the other names it writes, those in directories below with these; ``read``: the manifest of a directory; ``key``: the
    plan key in it; ``files``: the entries (name, bytes) of the files it lists; ``hint``: what else there is to do where other
    input made an output."""

    what: str
    manifest: str
    names: str
    read: Callable[[str], dict]
    key: Callable[[dict], str | None]
    files: Callable[[dict], list[dict]]
    hint: str = ""

    def finished(self, directory: str, key: str, overwrite: bool) -> dict | None:
        """The manifest when this very output was made before and its files are there; None when it has to be made.

        Raises OutputError when it was made, or begun, from other input or settings and ``overwrite`` is not set.
        """
        names = storage.list_names(directory)
        if self.manifest in names:
            try:
                manifest = self.read(directory)
            except FormatError as error:
                if overwrite:
                    return None
                raise OutputError(f"{error}. Pass --overwrite to replace it, or choose another --output.") from None
            if self.key(manifest) == key:
                return manifest if self._whole(directory, manifest) else None
            if not overwrite:
                raise self._taken(directory, self.what)
        elif STARTED in names and self._started_key(directory) != key and not overwrite:
            raise self._taken(directory, f"an unfinished run ({self.what})")
        return None

    def check(self, directory: str, inputs: Sequence[str] = (), files: Sequence[InputFile] = ()) -> None:
        """Raises OutputError as ``check_place``, and when the directory cannot be written."""
        self.check_place(directory, inputs, files)
        storage.check_writable(directory)

    def check_place(self, directory: str, inputs: Sequence[str] = (), files: Sequence[InputFile] = ()) -> None:
        """Raises OutputError when the directory holds what is not ours or one of the input ``files``, or lies where the
        patterns of ``inputs`` read."""
        names = storage.list_names(directory)
        others = [name for name in names if not name.startswith((".shardpiece-", LOCK))]
        if others and self.manifest not in names and STARTED not in names:
            raise OutputError(
                f"{directory}: not empty and not {self.what} (it holds {others[0]}). Choose another --output."
            )
        for file in files:
            if file.path.startswith(directory.rstrip("/") + "/"):
                raise OutputError(f"{directory}: holds the input {file.path}. Choose another --output.")
        pattern = inside(directory, list(inputs))
        if pattern is not None:
            raise OutputError(
                f"{directory}: the input {pattern} would read what is written here. Choose another --output."
            )

    @contextmanager
    def lock(self, directory: str, again: Callable[[], object]) -> Iterator[RunLock]:
        """Hold the directory's lock. Raises OutputError when another run holds it, and what ``again`` raises: it looks once
        more at what is there, which may have been made since."""
        with locked(directory, f"a run that makes {self.what}") as lock:
            again()
            yield lock

    def start(
        self, lock: RunLock, key: str, resume: bool = False, settings: dict | None = None, add: bool = False
    ) -> None:
        """Mark the locked directory as ours and remove what an older run left; with ``resume``, keep what a run of the same
        plan left; with ``add``, all that the manifest lists too, and the manifest itself until ``finish``."""
        directory = lock.directory
        names = storage.list_names(directory)
        same = STARTED in names and self._started_key(directory) == key
        if self.manifest in names and not same:
            try:
                same = self.key(self.read(directory)) == key
            except FormatError:
                same = False
        mark = {"writing": self.what, "key": key} | ({} if settings is None else {"settings": settings})
        storage.write_bytes(storage.join(directory, STARTED), storage.pretty_json(mark))
        if not add:
            storage.remove(storage.join(directory, self.manifest))
        if not (resume and same):
            listed = {file["name"] for file in self.files(self.read(directory))} if add else set()
            names = [name for name in storage.tree(directory) if name not in listed]
            self._remove(directory, names, keep="_journal/" if add else None)

    def still_ours(self, directory: str, key: str) -> None:
        """Raises OutputError when another run has taken the directory over in the meantime."""
        if self._started_key(directory) == key:
            return
        try:
            if self.key(self.read(directory)) == key:
                return  # a twin of this run has finished: its files are these
        except FormatError:
            pass
        raise OutputError(f"{directory}: another run has taken over this output; nothing was finished here")

    def finish(self, lock: RunLock, manifest: dict) -> None:
        """Write the manifest, then remove the mark and what the manifest does not list. Raises OutputError when
        another run has taken the directory over."""
        directory = lock.directory
        lock.check()
        self.still_ours(directory, self.key(manifest))
        storage.write_bytes(storage.join(directory, self.manifest), storage.pretty_json(manifest))
        storage.remove(storage.join(directory, STARTED))
        listed = {file["name"] for file in self.files(manifest)}
        self._remove(directory, [name for name in storage.tree(directory) if name not in listed], keep="_journal/")

    def _remove(self, directory: str, names: Iterable[str], keep: str | None = None) -> None:
        ours = re.compile(self.names)
        # What a killed process leaves: files that it was about to rename, and the probe of ``check_writable``.
        marks = "|".join(map(re.escape, (self.manifest, STARTED, LOCK)))
        left = re.compile(rf"(?:{self.names}|{marks})\.[0-9a-f]{{12}}\.tmp|\.shardpiece-[0-9a-f]{{12}}")
        for name in names:
            wanted = name == self.manifest or (keep and name.startswith(keep))
            if left.fullmatch(name) or (not wanted and ours.fullmatch(name)):
                storage.remove(storage.join(directory, name))
        storage.abort_uploads(directory, f"{self.names}|{marks}")
        storage.remove_empty(directory)

    def _started_key(self, directory: str) -> str | None:
        try:
            return storage.read_json(storage.join(directory, STARTED)).get("key")
        except FormatError:
            return None

    def _whole(self, directory: str, manifest: dict) -> bool:
        sizes = storage.tree(directory)
        for file in self.files(manifest):
            if sizes.get(file["name"]) != file["bytes"]:
                log(f"{directory}: {file['name']} is missing or has another size than {self.manifest} says, made again")
                return False
        return True

    def _taken(self, directory: str, what: str) -> OutputError:
        return OutputError(
            f"{directory}: holds {what} made from other input or settings. "
            f"Pass --overwrite to replace it{self.hint}, or choose another --output."
        )
