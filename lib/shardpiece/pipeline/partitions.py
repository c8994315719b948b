"""How the count stage divides the word table: into how many parts, and at which words.

Parts are ranges of words, so that each is sorted by one task and all together are sorted. The borders come from a sample of
the input. They decide how evenly the work is spread and nothing else: any borders give the same table.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from shardpiece.corpus.base import AnySplit, InputPlan, Selection
from shardpiece.errors import ShardpieceError
from shardpiece.pipeline.tasks import read_documents
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.words.counter import WordCounter

_MOST_TEXT = 64 << 20
_LEAST_TEXT = 16 << 20
_SAMPLE = 4 << 20
_SAMPLED_SPLITS = 32
_SAMPLE_OF_TEXT = 32
# What a row takes besides its word: about what a count, a group and a length take on their way.
_ROW_BYTES = 8


def choose_partitions(text_bytes: int, parallelism: int, most: int) -> int:
    """Parts of about 64 MiB of text (their distinct words are far less), more of them while cores would be idle and a part
    has 16 MiB, but ``most`` at most."""
    enough = -(-text_bytes // _MOST_TEXT)
    busy = min(2 * parallelism, text_bytes // _LEAST_TEXT)
    return max(1, min(most, max(enough, busy)))


def beginnings(plan: InputPlan) -> Iterator[tuple[Documents, list[str] | None]]:
    """Documents to choose borders by, and their groups: the beginnings of up to 32 splits, 1/32 of the text but no more than
    4 MiB. What cannot be read is left out here: the tasks will say what is wrong with it.
    """
    # Where reading is cheap: the rows in front of others of their row group would have to be decoded too.
    splits = [split for split in plan.splits if split.beginning(1) is not None]
    n = min(len(splits), _SAMPLED_SPLITS)
    chosen = [splits[i * len(splits) // n] for i in range(n)]
    share = min(_SAMPLE, plan.text_bytes // _SAMPLE_OF_TEXT) // max(1, n)
    with ThreadPoolExecutor(16) as pool:
        yield from pool.map(lambda split: _beginning(split, plan.selection, share), chosen)


def choose_borders(
    sample: Iterable[tuple[Documents, list[str] | None]], engine: TextEngine, partitions: int
) -> list[bytes]:
    """The first word of each partition but the first, ascending; fewer where the sample has too few words. A function of the
    sample and of ``partitions``."""
    if partitions < 2:
        return []
    counter = WordCounter(64 << 20)
    for documents, groups in sample:
        try:
            words = engine.split(documents)
        except ShardpieceError:
            continue
        for _ in counter.add(words, groups):
            pass
    sizes, words = [np.zeros(1, np.int64)], []
    for batch in counter.drain():
        words.append(batch["word"])
        sizes.append(np.diff(np.frombuffer(batch["word"].buffers()[1], np.int32)).astype(np.int64) + _ROW_BYTES)
    ends = np.cumsum(np.concatenate(sizes))
    starts = np.cumsum([0, *map(len, words)])
    borders = set()
    for p in range(1, partitions):
        row = int(np.searchsorted(ends, ends[-1] * p // partitions))
        if row < starts[-1]:
            batch = int(np.searchsorted(starts, row, side="right")) - 1
            borders.add(words[batch][row - int(starts[batch])].as_py())
    return sorted(borders)


def _beginning(split: AnySplit, selection: Selection, size: int) -> tuple[Documents, list[str] | None]:
    """The first documents of a split, ``size`` bytes of them or none."""
    group = selection.columns.group
    try:
        for batch, documents in read_documents([split.beginning(size)], selection, "replace"):
            n = int(np.searchsorted(documents.offsets, documents.offsets[0] + 2 * size, side="right")) - 1
            groups = None
            if group:
                groups = [name or "" for name in batch.plain(group).to_pylist()[:n]]
            return replace(documents, offsets=documents.offsets[: n + 1]), groups
    except ShardpieceError:
        pass
    return Documents.from_strings([]), None if group is None else []
