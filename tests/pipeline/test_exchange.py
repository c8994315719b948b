"""Documents through a shuffle, without Spark: any cut into tasks, batches and parts brings them there whole and in order."""

import numpy as np
import pyarrow as pa
import pytest

from shardpiece.errors import ShardpieceError
from shardpiece.pipeline.encode import exchange
from shardpiece.pipeline.encode.exchange import Scatter, gather

SCHEMA = pa.schema([("n", pa.int64()), ("tokens", pa.large_binary()), ("more", pa.list_(pa.string()))])


def documents(count: int) -> list[dict]:
    rng = np.random.default_rng(count)
    sizes = rng.integers(0, 300, count)
    sizes[::50] = 5_000
    return [{"n": i, "tokens": rng.bytes(int(n)), "more": [None, [], ["ä", None]][i % 3]} for i, n in enumerate(sizes)]


def sent(rows: list[dict], partitions: np.ndarray, tasks: int, batch: int, memory: int) -> list[pa.RecordBatch]:
    found = []
    for task, part in enumerate(np.array_split(np.arange(len(rows)), tasks)):
        scatter = Scatter(task, memory)
        for first in range(0, len(part), batch):
            mine = part[first : first + batch]
            found += scatter.add(pa.RecordBatch.from_pylist([rows[i] for i in mine], SCHEMA), partitions[mine])
        found += scatter.finish({2: f"task {task}"})
    return found


def shuffled(batches: list[pa.RecordBatch], batch: int) -> list[pa.RecordBatch]:
    """What Spark would hand to one task with all partitions: sorted, in other batches."""
    table = pa.Table.from_batches(batches).take(np.random.default_rng(1).permutation(sum(map(len, batches))))
    order = [(name, "ascending") for name in ("partition", *exchange.ORDER)]
    return table.sort_by(order).combine_chunks().to_batches(batch)


@pytest.mark.parametrize(("tasks", "batch", "memory"), [(1, 1000, 1 << 30), (3, 7, 1), (4, 40, 20_000)])
def test_documents_arrive_whole_and_in_order(tasks, batch, memory, monkeypatch):
    monkeypatch.setattr(exchange, "_CHUNK_BYTES", 2_000)
    monkeypatch.setattr(exchange, "_PART_BYTES", 1_500)
    monkeypatch.setattr(exchange, "_BATCH_BYTES", 4_000)
    rows = documents(400)
    partitions = np.random.default_rng(0).integers(0, 4, len(rows))
    batches = sent(rows, partitions, tasks, batch, memory)
    assert max(len(data) for b in batches for data in b["data"].to_pylist()) <= 1_500
    got: dict[int, list] = {}
    notes = []
    for partition, note, found in gather(iter(shuffled(batches, 3)), SCHEMA):
        got.setdefault(partition, []).extend(found.to_pylist())
        notes += [(partition, note)] if note else []
    assert notes == [(2, f"task {task}") for task in range(tasks)]
    assert got == {p: [row for row, q in zip(rows, partitions, strict=True) if p == q] for p in range(4)}


def test_a_lost_part_is_an_error(monkeypatch):
    monkeypatch.setattr(exchange, "_PART_BYTES", 1_500)
    batches = shuffled(sent(documents(1), np.zeros(1, np.int32), 1, 1, 1), 1)
    assert len(batches) == 5
    with pytest.raises(ShardpieceError, match="the shuffle lost a part"):
        list(gather(iter(batches[:1] + batches[2:]), SCHEMA))


def test_documents_without_an_order_come_by_key_and_content(monkeypatch):
    monkeypatch.setattr(exchange, "_PART_BYTES", 1_500)
    schema = SCHEMA.append(pa.field("key", pa.uint64()))
    keys = [5, (1 << 64) - 1, 5, 0, 5, 1 << 63]
    rows = [{**document, "key": key} for document, key in zip(documents(6), keys, strict=True)]
    rows += [rows[0], rows[0]]  # 5,000 bytes, several parts
    found = []
    for order in (range(8), [3, 7, 5, 1, 0, 2, 6, 4]):
        scatter = Scatter(None, 1)
        batches = [
            b for i in order for b in scatter.add(pa.RecordBatch.from_pylist([rows[i]], schema), np.zeros(1, int))
        ]
        batches += [b for _ in range(3) for b in Scatter(None, 1).finish({0: "a note"})]
        assert [note for _, note, _ in gather(iter(shuffled(batches, 2)), schema) if note] == ["a note"] * 3
        found.append([row for _, _, got in gather(iter(shuffled(batches, 2)), schema) for row in got.to_pylist()])
    assert found[0] == found[1]
    assert [row["key"] for row in found[0]] == sorted(row["key"] for row in rows)
    assert sorted(row["n"] for row in found[0]) == sorted(row["n"] for row in rows)
