"""What all shards left over, packed into the last one: a task of its own when they are done."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark import Broadcast

from shardpiece.pipeline.encode.documents import STATISTICS
from shardpiece.pipeline.encode.task import OUTPUT
from shardpiece.pipeline.tasks import result_batch
from shardpiece.shards import manifest as manifests
from shardpiece.shards.builder import ShardBuilder, ShardLayout
from shardpiece.shards.statistics import Statistics
from shardpiece.shards.tails import read_tail


@dataclass(frozen=True)
class TailTask:
    """Writes the shard ``name``; called on executors. ``tails``: their entries, in the order of the shards."""

    name: str
    tails: Broadcast  # of list[dict]
    output: str
    key: str
    layout: ShardLayout

    def __call__(self, index: int) -> Iterator[pa.RecordBatch]:
        entry = manifests.read_journal_entry(self.output, self.name, self.key)
        resumed = entry is not None
        if entry is None:
            OUTPUT.still_ours(self.output, self.key)
            entry, counted = self._pack()
            OUTPUT.still_ours(self.output, self.key)
            manifests.write_journal_entry(self.output, entry, counted)
        yield result_batch([{**entry, "resumed": resumed}])

    def _pack(self) -> tuple[dict, Statistics]:
        layout = replace(self.layout, packing=self.layout.packing.of_tails())
        builder = ShardBuilder(self.output, self.name, layout)
        try:
            for entry in self.tails.value:
                builder.add_tail(entry["split"], read_tail(self.output, entry))
            written = builder.finish()
        except BaseException:
            builder.discard()
            raise
        # Its documents are those of other shards, and counted there.
        return {"key": self.key, **dict.fromkeys(STATISTICS, 0), **written, "sources": []}, builder.statistics
