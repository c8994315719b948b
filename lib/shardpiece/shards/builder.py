"""One shard in the making: documents in, one set of files per format out."""

from dataclasses import dataclass

import numpy as np

from shardpiece import storage
from shardpiece.errors import ShardpieceError
from shardpiece.shards import formats
from shardpiece.shards.formats.base import Format, ShardSpec, ShardWriter, TokenBatch, smallest_dtype


@dataclass(frozen=True)
class ShardLayout:
    """How shards of a run are written. ``formats``: their names; with several, each has a directory of its name."""

    formats: tuple[str, ...]
    spec: ShardSpec

    def chosen(self) -> list[Format]:
        return [formats.get(name) for name in self.formats]

    def place(self, name: str) -> str:
        """The directory of a format below the output; "" for the output itself."""
        return name if len(self.formats) > 1 else ""

    def dtype(self) -> np.dtype:
        """What ids are on their way to the writers: the type of the files where there is one format, or one type."""
        kinds = {format.dtype(self.spec.vocab_size) for format in self.chosen()}
        return kinds.pop() if len(kinds) == 1 else smallest_dtype(self.spec.vocab_size)

    def carries(self, what: str) -> bool:
        """Whether any format has a place for "ids", "metadata" or "pieces"."""
        return any(what in format.carries for format in self.chosen())

    def check(self) -> None:
        """Raises ConfigError for what one of the formats cannot hold."""
        for format in self.chosen():
            format.dtype(self.spec.vocab_size)
            format.check(self.spec)


class ShardBuilder:
    """Writes documents to every format of a layout. Files appear when ``finish`` returns; after an error call ``discard``."""

    def __init__(self, directory: str, name: str, layout: ShardLayout):
        self._name, self._layout = name, layout
        self._writers: dict[str, ShardWriter] = {}
        self._documents = self._tokens = 0
        try:
            for format in layout.chosen():
                place = storage.join(directory, layout.place(format.name)) if layout.place(format.name) else directory
                self._writers[format.name] = format.open(place, name, layout.spec)
        except BaseException:
            self.discard()
            raise

    def add(self, batch: TokenBatch) -> None:
        """Add documents. Raises ShardpieceError for an id outside the vocabulary."""
        size = self._layout.spec.vocab_size
        if len(batch.tokens) and (batch.tokens.max() >= size or batch.tokens.min() < 0):
            raise ShardpieceError(f"a token id outside the vocabulary of {size} was about to be written")
        for writer in self._writers.values():
            writer.write(batch)
        self._documents += len(batch)
        self._tokens += len(batch.tokens)

    def finish(self) -> dict:
        """The shard's entry in journal and manifest: name, files, documents, tokens, and "extra" where a format has some."""
        files: list[dict] = []
        extra: dict[str, dict] = {}
        for name, writer in self._writers.items():
            written = writer.close()
            place = self._layout.place(name)
            for file in written.files:
                entry = file.as_dict()
                files.append({**entry, "name": storage.join(place, entry["name"]) if place else entry["name"]})
            if written.extra:
                extra[name] = written.extra
        entry = {"name": self._name, "files": files, "documents": self._documents, "tokens": self._tokens}
        return {**entry, "extra": extra} if extra else entry

    def discard(self) -> None:
        """Leave nothing behind; after ``finish`` this does nothing."""
        for writer in self._writers.values():
            writer.discard()


def finish_formats(directory: str, shards: list[dict], layout: ShardLayout) -> dict[str, dict]:
    """Write what stands beside the shards in each format; {format: {directory, dtype, files}} for the manifest."""
    described = {}
    for format in layout.chosen():
        place = layout.place(format.name)
        own = [
            {
                **shard,
                "files": [
                    {**file, "name": file["name"].removeprefix(f"{place}/")}
                    for file in shard["files"]
                    if file["format"] == format.name
                ],
                "extra": shard.get("extra", {}).get(format.name, {}),
            }
            for shard in shards
        ]
        files = format.finish(storage.join(directory, place) if place else directory, own, layout.spec)
        described[format.name] = {
            "directory": place,
            "dtype": format.dtype(layout.spec.vocab_size).name,
            "files": [
                {**file.as_dict(), "name": storage.join(place, file.name) if place else file.name} for file in files
            ],
        }
    return described
