"""What the encode stage does on executors when documents stay where they are: one shard per task."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import Broadcast

from shardpiece.corpus.splits import read_batches
from shardpiece.pipeline.encode.documents import STATISTICS, DocumentEncoder
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.tasks import result_batch
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import TRAIN, VALIDATION, ShardBuilder, ShardLayout
from shardpiece.shards.formats import FORMATS
from shardpiece.shards.plan import Shard
from shardpiece.shards.statistics import DIRECTORY as STATISTICS_DIRECTORY
from shardpiece.shards.statistics import Statistics
from shardpiece.shards.tails import write_tails


def _file_names() -> str:
    """A regular expression of the names in a shard directory, those of formats' own directories among them."""
    suffixes = "|".join(suffix for format in FORMATS.values() for suffix in format.suffixes)
    extras = [extra for format in FORMATS.values() for extra in format.extras]
    names = "|".join([rf"shard-\d{{5,}}(?:\.\d{{3,}})?(?:{suffixes})", *extras])
    shards = rf"(?:(?:{'|'.join(FORMATS)})/)?(?:(?:{TRAIN}|{VALIDATION})/)?(?:{names})"
    return rf"{shards}|{STATISTICS_DIRECTORY}/\d{{5,}}\.parquet|{manifests.JOURNAL}/.*"


OUTPUT = OutputKind(
    what="shards",
    manifest=manifests.MANIFEST,
    names=_file_names(),
    read=manifests.read_manifest,
    key=lambda manifest: manifest["key"],
    files=manifests.files_of,
    hint=", pass --incremental to add to it what of the input is new where no setting has changed",
)


@dataclass(frozen=True)
class EncodeTask:
    """Encodes one shard; called on executors."""

    shards: Broadcast  # of list[Shard]: unpickled once per worker, not once per task
    output: str
    key: str
    layout: ShardLayout
    documents: DocumentEncoder

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        shard = self.shards.value[index]
        entry = manifests.read_journal_entry(self.output, shard.name, self.key)
        resumed = entry is not None
        if entry is None:
            OUTPUT.still_ours(self.output, self.key)
            entry, counted = self._encode(shard)
            OUTPUT.still_ours(self.output, self.key)
            manifests.write_journal_entry(self.output, entry, counted)
        self.documents.counters.planned.add(shard.text_bytes)
        yield result_batch([{**entry, "resumed": resumed}])

    def _encode(self, shard: Shard) -> tuple[dict, Statistics]:
        statistics = dict.fromkeys(STATISTICS, 0)
        builder = ShardBuilder(self.output, shard.name, self.layout)
        try:
            batches = read_batches(shard.splits, self.documents.selection)
            for encoded in self.documents.encode(batches, statistics):
                encoded.count(statistics)
                encoded.count_groups(builder.statistics)
                builder.add(encoded.written(), encoded.written_keys())
            written = builder.finish()
            if builder.tails:
                written["tails"] = write_tails(self.output, shard.name, builder.tails)
        except BaseException:
            builder.discard()
            raise
        return {"key": self.key, **statistics, **written, "sources": shard.sources()}, builder.statistics
