"""One shard in the making: documents in, one set of files per format out, or one for training and one for validation."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardpiece import storage
from shardpiece.corpus.order import Placement, Validation
from shardpiece.shards import formats
from shardpiece.shards.arrangement import Arrangement
from shardpiece.shards.formats.base import Format, ShardSpec, ShardWriter, TokenBatch, smallest_dtype
from shardpiece.shards.packing import Packing
from shardpiece.shards.rows import take_rows
from shardpiece.shards.statistics import Statistics

TRAIN, VALIDATION = "train", "validation"


@dataclass(frozen=True)
class ShardLayout:
    """How shards of a run are written. ``formats``: their names; with several, each has a directory of its name;
    ``validation``: documents that are set apart; then each of these has directories ``train`` and ``validation``;
    ``packing``: None for a row per document; ``seed``: of the order within shards, None for that in which documents come;
    ``memory``: bytes for what a builder cannot write yet."""

    formats: tuple[str, ...]
    spec: ShardSpec
    validation: Validation | None = None
    packing: Packing | None = None
    seed: int | None = None
    memory: int = 256 << 20

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
    def keeps_ids(self) -> bool:
        """Whether any format has a place for the ids of documents in its rows."""
        return self.carries("ids")

    @property
    def needs_ids(self) -> bool:
        """Whether ids of documents decide where they go."""
        return self.validation is not None or self.seed is not None

    def check(self) -> None:
        """Raises ConfigError for what one of the formats cannot hold."""
        for format in self.chosen():
            format.dtype(self.spec.vocab_size)
            format.check(self.spec)


class ShardBuilder:
    """Writes documents to every format of a layout. Files appear when ``finish`` returns; after an error call ``discard``.

    Where documents are set apart for validation, a side without any leaves no file. ``statistics``: of all
    documents so far."""

    def __init__(self, directory: str, name: str, layout: ShardLayout):
        self._name, self._layout = name, layout
        self.statistics = Statistics.empty(layout.spec.vocab_size)
        self._sides = {split: _Side(directory, name, layout, split) for split in layout.splits}
        if layout.validation is None:
            self._sides[""].open()

    def add(self, batch: TokenBatch, keys: np.ndarray | None = None) -> None:
        """Add documents; they have ids where the layout needs them. ``keys``: uint64 [rows], of their order where there is
        one; by default by their ids. Raises ShardpieceError for a token outside the vocabulary."""
        self.statistics.add(batch.tokens, batch.offsets)
        if keys is None and self._layout.seed is not None:
            keys = Placement(self._layout.seed).keys(batch.ids)
        if self._layout.validation is None:
            self._sides[""].add(batch, keys)
        elif len(batch):
            chosen = self._layout.validation.chosen(batch.ids)
            for split, rows in ((TRAIN, ~chosen), (VALIDATION, chosen)):
                if rows.any():
                    chosen_keys = None if keys is None else keys[rows]
                    self._sides[split].add(batch if rows.all() else take_rows(batch, np.flatnonzero(rows)), chosen_keys)

    def add_tail(self, split: str, pieces: TokenBatch) -> None:
        """Add what another shard has left of a side, in a layout whose packing is that of tails; its documents are that
        shard's, and not counted."""
        self._sides[split].add_tail(pieces)

    @property
    def tails(self) -> dict[str, TokenBatch]:
        """By side, what packing has left for the last shard; after ``finish``."""
        return {split: side.tail for split, side in self._sides.items() if side.tail is not None}

    def finish(self) -> dict:
        """The shard's entry in journal and manifest: name, files, documents and their tokens; of packed ones rows and
        "packing", its statistics; and "extra" where a format has some. Where documents are set apart, "splits" has all but
        name and files of each side that has documents."""
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
        memory = layout.memory // len(layout.splits)
        self._rows = Arrangement(name, layout.packing, layout.seed, layout.keeps_ids, memory)
        self._documents = self._tokens = 0

    @property
    def tail(self) -> TokenBatch | None:
        return self._rows.tail

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

    def add(self, batch: TokenBatch, keys: np.ndarray | None) -> None:
        self._documents += len(batch)
        self._tokens += len(batch.tokens)
        self._write(self._rows.add(batch, keys))

    def add_tail(self, pieces: TokenBatch) -> None:
        self._write(self._rows.add_tail(pieces))

    def _write(self, batches: Iterator[TokenBatch]) -> None:
        if not self.opened:
            self.open()
        for batch in batches:
            for writer in self._writers.values():
                writer.write(batch)

    def finish(self) -> dict:
        """files, documents, tokens, of packing "rows" and "packing", and "extra" where a format has some."""
        self._write(self._rows.finish())
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
        if self._layout.packing is not None:
            entry |= {"rows": self._rows.rows, "packing": self._rows.statistics}
        return {**entry, "extra": extra} if extra else entry

    def discard(self) -> None:
        self._rows.close()
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
