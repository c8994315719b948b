"""What the encode stage does on executors: one shard per task, with a tokenizer built once per worker process."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark import Broadcast

from shardpiece import storage
from shardpiece.corpus.base import Selection
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.tasks import Counters, document_errors, read_documents, result_batch
from shardpiece.pipeline.warm_words import WarmWords
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import TRAIN, VALIDATION, ShardBuilder, ShardLayout
from shardpiece.shards.formats import FORMATS
from shardpiece.shards.formats.base import TokenBatch
from shardpiece.shards.plan import Shard
from shardpiece.shards.tails import write_tails
from shardpiece.shards.token_buffer import TokenBuffer
from shardpiece.text.documents import Documents
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.sampling import Sampling, document_keys
from shardpiece.tokenizer.tokenizer import Tokenizer

STATISTICS = ("documents", "null_documents", "empty_documents", "replaced_documents", "bytes", "tokens")


def _file_names() -> str:
    """A regular expression of the names in a shard directory, those of formats' own directories among them."""
    suffixes = "|".join(suffix for format in FORMATS.values() for suffix in format.suffixes)
    extras = [extra for format in FORMATS.values() for extra in format.extras]
    names = "|".join([rf"shard-\d{{5,}}(?:\.\d{{3,}})?(?:{suffixes})", *extras])
    return rf"(?:(?:{'|'.join(FORMATS)})/)?(?:(?:{TRAIN}|{VALIDATION})/)?(?:{names})|{manifests.JOURNAL}/.*"


OUTPUT = OutputKind(
    what="shards",
    manifest=manifests.MANIFEST,
    names=_file_names(),
    read=manifests.read_manifest,
    key=lambda manifest: manifest["key"],
    files=manifests.files_of,
)
# Text that is split, encoded and copied in one go: its words and ids are still in the processor's cache for the next step.
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Encoding:
    """What decides the ids of a document. ``before``, ``after``: ids around each one; ``sampling``: None for the one
    segmentation of the model."""

    special_tokens_in_text: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    keep_empty: bool
    sampling: Sampling | None = None


@dataclass(frozen=True)
class WorkerTokenizer:
    """``packed``: the tokenizer; ``words``: what its encoder meets first; ``cache_bytes``: of its cache of words."""

    packed: bytes
    words: WarmWords | None
    cache_bytes: int

    @property
    def key(self) -> str:
        """Equal for what builds the same encoder with the same words in it."""
        words = b"" if self.words is None else self.words.data.tobytes()
        return f"{storage.checksum_bytes(self.packed)} {storage.checksum_bytes(words)} {self.cache_bytes}"

    def without_words(self) -> Tokenizer:
        return packed.unpack(self.packed, self.cache_bytes)

    def build(self) -> Tokenizer:
        tokenizer = self.without_words()
        if self.words is not None:
            self.words.encode_with(tokenizer)
        return tokenizer


@dataclass(frozen=True)
class EncodeTask:
    """Encodes one shard; called on executors."""

    shards: Broadcast  # of list[Shard]: unpickled once per worker, not once per task
    selection: Selection
    invalid_utf8: str
    output: str
    key: str
    layout: ShardLayout
    encoding: Encoding
    tokenizer: Broadcast  # of WorkerTokenizer
    tokenizer_key: str  # its ``key``
    counters: Counters

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        shard = self.shards.value[index]
        entry = manifests.read_journal_entry(self.output, shard.name, self.key)
        resumed = entry is not None
        if entry is None:
            OUTPUT.still_ours(self.output, self.key)
            entry = self._encode(shard)
            OUTPUT.still_ours(self.output, self.key)
            storage.write_bytes(manifests.journal_path(self.output, shard.name), storage.pretty_json(entry))
        self.counters.planned.add(shard.text_bytes)
        yield result_batch([{**entry, "resumed": resumed}])

    def _encode(self, shard: Shard) -> dict:
        tokenizer = worker_tokenizer(self.tokenizer_key, self.tokenizer)
        statistics = dict.fromkeys(STATISTICS, 0)
        builder = ShardBuilder(self.output, shard.name, self.layout)
        try:
            for batch in encoded_batches(self, shard, tokenizer, statistics):
                builder.add(batch)
            written = builder.finish()
            if builder.tails:
                written["tails"] = write_tails(self.output, shard.name, builder.tails)
        except BaseException:
            builder.discard()
            raise
        return {"key": self.key, **statistics, **written, "sources": shard.sources()}


def encoded_batches(
    task: EncodeTask, shard: Shard, tokenizer: Tokenizer, statistics: dict[str, int]
) -> Iterator[TokenBatch]:
    """The documents of a shard's splits, encoded; adds them up in ``statistics``."""
    encoding, counters = task.encoding, task.counters
    dtype = task.layout.dtype()
    for batch, documents in read_documents(shard.splits, task.selection, task.invalid_utf8):
        buffer = TokenBuffer(
            dtype, tokenizer.vocab_size, encoding.before, encoding.after, encoding.keep_empty,
            len(documents), documents.size,
        )  # fmt: skip
        ids = keys = None
        needed = "sampling, order and validation" if task.layout.needs_ids or encoding.sampling is not None else ""
        if task.layout.keeps_ids or needed:
            ids = batch.ids(task.selection.columns.id, needed)
        if encoding.sampling is not None:
            keys = document_keys(ids, encoding.sampling)
        for first, chunk in chunks(documents):
            chunk_keys = None if keys is None else keys[first : first + len(chunk)]
            with document_errors(batch, first):
                tokens, offsets = tokenizer.encode_documents(
                    chunk, encoding.special_tokens_in_text, encoding.sampling, chunk_keys
                )
            buffer.add(tokens, offsets, chunk.offsets)
        tokens, offsets = buffer.take()
        if ids is not None and not encoding.keep_empty:
            ids = ids.filter(pa.array(np.diff(documents.offsets) > 0))
        statistics["documents"] += len(offsets) - 1
        statistics["null_documents"] += documents.nulls
        statistics["empty_documents"] += documents.empty
        statistics["replaced_documents"] += documents.replaced
        statistics["bytes"] += documents.size
        statistics["tokens"] += len(tokens)
        counters.documents.add(len(documents))
        counters.bytes.add(documents.size)
        counters.tokens.add(len(tokens))
        yield TokenBatch(tokens, offsets, ids)


def chunks(documents: Documents) -> Iterator[tuple[int, Documents]]:
    """Consecutive documents of about a megabyte of text together, or one; each with its first document's number."""
    first = 0
    while first < len(documents):
        end = int(np.searchsorted(documents.offsets, documents.offsets[first] + _CHUNK_BYTES, side="right")) - 1
        end = min(max(end, first + 1), len(documents))
        yield first, Documents(documents.data, documents.offsets[first : end + 1])
        first = end


_BUILT: dict[str, Tokenizer] = {}


def worker_tokenizer(key: str, broadcast: Broadcast) -> Tokenizer:
    """The broadcast tokenizer, built once per worker process."""
    if key not in _BUILT:
        _BUILT.clear()
        _BUILT[key] = broadcast.value.build()
    return _BUILT[key]
