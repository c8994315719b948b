"""What the evaluate stage does on executors: measures parts of the corpus with all tokenizers, and merges what came of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import Broadcast

from shardpiece.corpus.base import Columns, Selection
from shardpiece.evaluation.measure import Measurer, Pieces
from shardpiece.evaluation.parallel import key_hashes
from shardpiece.evaluation.tally import TextTally, TokenTally
from shardpiece.pipeline.encode.documents import chunks
from shardpiece.pipeline.tasks import Counters, document_errors, errors_for_driver, read_documents
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.tokenizer import Tokenizer

_ROW_NAMES = ("partition", "data")
ROW_SCHEMA = "partition int, data binary"
_CACHE_BYTES = 256 << 20


@dataclass(frozen=True)
class EvaluateTask:
    """Measures the splits of one task; called on executors."""

    tasks: Broadcast  # of list[list[AnySplit]]
    selection: Selection
    invalid_utf8: str
    tokenizers: Broadcast  # of list[bytes], packed
    tokenizers_key: str
    columns: Columns
    parallel_column: str | None
    parallel_key: str | None
    memory: int
    counters: Counters

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        tokenizers, pieces = _worker_tokenizers(self.tokenizers_key, self.tokenizers)
        measurer = Measurer(tokenizers, self.memory, pieces)
        splits = self.tasks.value[index]
        for batch, documents in read_documents(splits, self.selection, self.invalid_utf8):
            groups = [""] * len(batch)
            if self.columns.group:
                groups = [name or "" for name in batch.plain(self.columns.group).to_pylist()]
            ids = batch.ids(self.columns.id).to_pylist()
            keys = None
            if self.parallel_column:
                keys = key_hashes(batch.plain(self.parallel_column).to_pylist(), self.parallel_key)
            for first, chunk in chunks(documents):
                here = slice(first, first + len(chunk))
                with document_errors(batch, first):
                    measurer.add(
                        chunk, groups[here], ids[here], None if keys is None else keys[here], batch.positions[here]
                    )
            self.counters.documents.add(len(documents))
            self.counters.bytes.add(documents.size)
        text, tallies = measurer.finish()
        self.counters.planned.add(sum(split.text_bytes for split in splits))
        for partition, tally in enumerate((*tallies, text)):
            yield _row(partition, tally.to_bytes())


def _row(partition: int, data: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([partition], pa.int32()), pa.array([data], pa.binary())], names=_ROW_NAMES
    )


@dataclass(frozen=True)
class Merge:
    """Merges the tallies of a tokenizer, those with the last number the texts'; on executors."""

    of_text: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with errors_for_driver():
            merged: dict[int, TextTally | TokenTally] = {}
            for batch in batches:
                for partition, data in zip(*(batch[name] for name in _ROW_NAMES), strict=True):
                    number = partition.as_py()
                    kind = TextTally if number == self.of_text else TokenTally
                    tally = kind.from_bytes(data.as_py())
                    if number in merged:
                        merged[number].merge(tally)
                    else:
                        merged[number] = tally
            for number in sorted(merged):
                yield _row(number, merged.pop(number).to_bytes())


_BUILT: dict[str, tuple[list[Tokenizer], list[Pieces | None]]] = {}


def _worker_tokenizers(key: str, broadcast: Broadcast) -> tuple[list[Tokenizer], list[Pieces | None]]:
    """The broadcast tokenizers, built once per worker process."""
    if key not in _BUILT:
        _BUILT.clear()
        room = _CACHE_BYTES // len(broadcast.value)
        tokenizers = [packed.unpack(raw, room) for raw in broadcast.value]
        _BUILT[key] = tokenizers, [Pieces.of(tokenizer) for tokenizer in tokenizers]
    return _BUILT[key]
