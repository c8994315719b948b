"""One shard in the making: documents in, one set of files per format out, or one for training and one for validation."""

from dataclasses import dataclass

import numpy as np

from shardpiece import storage
from shardpiece.corpus.order import Validation
from shardpiece.errors import ShardpieceError
from shardpiece.shards import formats
from shardpiece.shards.formats.base import Format, ShardSpec, ShardWriter, TokenBatch, smallest_dtype
from shardpiece.shards.rows import take_rows

TRAIN, VALIDATION = "train", "validation"


@dataclass(frozen=True)
class ShardLayout:
    """How shards of a run are written. ``formats``: their names; with several, each has a directory of its name;
    ``validation``: documents that are set apart; then each of these has directories ``train`` and ``validation``."""

    formats: tuple[str, ...]
    spec: ShardSpec
    validation: Validation | None = None

    def chosen(self) -> list[Format]:
        return [formats.get(name) for name in self.formats]

    @property
    def splits(self) -> tuple[str, ...]:
        """The sides that documents are split into; one without a name when nothing is set apart."""
        return ("",) if self.validation is None else (TRAIN, VALIDATION)

    def place(self, name: str, split: str = "") -> str:
        """The directory of a format and side below the output; "" for the output itself."""
        return "/".join(filter(None, (name if len(self.formats) > 1 else "", split)))

    def dtype(self) -> np.dtype:
        """What ids are on their way to the writers: the type of the files where there is one format, or one type."""
        kinds = {format.dtype(self.spec.vocab_size) for format in self.chosen()}
        return kinds.pop() if len(kinds) == 1 else smallest_dtype(self.spec.vocab_size)

    def carries(self, what: str) -> bool:
        """Whether any format has a place for "ids", "metadata" or "pieces"."""
        return any(what in format.carries for format in self.chosen())

    @property
    def needs_ids(self) -> bool:
        """Whether documents have to come with their ids."""
        return self.carries("ids") or self.validation is not None

    def check(self) -> None:
        """Raises ConfigError for what one of the formats cannot hold."""
        for format in self.chosen():
            format.dtype(self.spec.vocab_size)
            format.check(self.spec)


class ShardBuilder:
    """Writes documents to every format of a layout. Files appear when ``finish`` returns; after an error call ``discard``.

    Where documents are set apart for validation, a side without any leaves no file."""

    def __init__(self, directory: str, name: str, layout: ShardLayout):
        self._name, self._layout = name, layout
        self._sides = {split: _Side(directory, name, layout, split) for split in layout.splits}
        if layout.validation is None:
            self._sides[""].open()

    def add(self, batch: TokenBatch) -> None:
        """Add documents; they need ids when some are set apart. Raises ShardpieceError for a token outside the vocabulary."""
        size = self._layout.spec.vocab_size
        if len(batch.tokens) and (batch.tokens.max() >= size or batch.tokens.min() < 0):
            raise ShardpieceError(f"a token id outside the vocabulary of {size} was about to be written")
        if self._layout.validation is None:
            self._sides[""].add(batch)
        elif len(batch):
            chosen = self._layout.validation.chosen(batch.ids)
            for split, rows in ((TRAIN, ~chosen), (VALIDATION, chosen)):
                if rows.any():
                    self._sides[split].add(batch if rows.all() else take_rows(batch, np.flatnonzero(rows)))

    def finish(self) -> dict:
        """The shard's entry in journal and manifest: name, files, documents, tokens, and "extra" where a format has some.
        Where documents are set apart, "splits" has the last three of each side that has documents."""
        found = {split: side.finish() for split, side in self._sides.items() if side.opened}
        entry = {
            "name": self._name,
            "files": [file for side in found.values() for file in side.pop("files")],
            "documents": sum(side["documents"] for side in found.values()),
            "tokens": sum(side["tokens"] for side in found.values()),
        }
        return {**entry, **found[""]} if self._layout.validation is None else {**entry, "splits": found}

    def discard(self) -> None:
        """Leave nothing behind; after ``finish`` this does nothing."""
        for side in self._sides.values():
            side.discard()


class _Side:
    """The documents of a shard for training, or those for validation."""

    def __init__(self, directory: str, name: str, layout: ShardLayout, split: str):
        self._directory, self._name, self._layout, self._split = directory, name, layout, split
        self._writers: dict[str, ShardWriter] = {}
        self._documents = self._tokens = 0

    @property
    def opened(self) -> bool:
        return bool(self._writers)

    def open(self) -> None:
        try:
            for format in self._layout.chosen():
                place = _below(self._directory, self._layout.place(format.name, self._split))
                self._writers[format.name] = format.open(place, self._name, self._layout.spec)
        except BaseException:
            self.discard()
            raise

    def add(self, batch: TokenBatch) -> None:
        if not self.opened:
            self.open()
        for writer in self._writers.values():
            writer.write(batch)
        self._documents += len(batch)
        self._tokens += len(batch.tokens)

    def finish(self) -> dict:
        """files, documents, tokens, and "extra" where a format has some."""
        files: list[dict] = []
        extra: dict[str, dict] = {}
        for name, writer in self._writers.items():
            written = writer.close()
            place = self._layout.place(name, self._split)
            for file in written.files:
                entry = {**file.as_dict(), "name": _below(place, file.name)}
                files.append({**entry, "split": self._split} if self._split else entry)
            if written.extra:
                extra[name] = written.extra
        entry = {"files": files, "documents": self._documents, "tokens": self._tokens}
        return {**entry, "extra": extra} if extra else entry

    def discard(self) -> None:
        for writer in self._writers.values():
            writer.discard()


def _below(directory: str, name: str) -> str:
    """``name`` in a directory; either may be empty."""
    return storage.join(directory, name) if directory and name else directory or name


def finish_formats(directory: str, shards: list[dict], layout: ShardLayout) -> dict[str, dict]:
    """Write what stands beside the shards in each format; {format: {directory, dtype, files}} for the manifest."""
    described = {}
    for format in layout.chosen():
        files: list[dict] = []
        for split in layout.splits:
            place = layout.place(format.name, split)
            own = [_own(shard, format.name, split, place) for shard in shards if not split or split in shard["splits"]]
            if split and not own:
                continue
            for file in format.finish(_below(directory, place), own, layout.spec):
                entry = {**file.as_dict(), "name": _below(place, file.name)}
                files.append({**entry, "split": split} if split else entry)
        described[format.name] = {
            "directory": layout.place(format.name),
            "dtype": format.dtype(layout.spec.vocab_size).name,
            "files": files,
        }
    return described


def _own(shard: dict, format: str, split: str, place: str) -> dict:
    """The entry of a shard as it concerns a format and side, whose files lie in ``place``."""
    side = shard["splits"][split] if split else shard
    files = [file for file in shard["files"] if file["format"] == format and file.get("split", "") == split]
    return {
        **shard,
        **side,
        "files": [{**file, "name": file["name"].removeprefix(f"{place}/")} for file in files],
        "extra": side.get("extra", {}).get(format, {}),
    }
