"""Rows in the order of their keys, in bounded memory: against sorted(), with a temporary file and without."""

import errno
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import OutputError, ShardpieceError
from shardpiece.shards import spool as spools
from shardpiece.shards.formats.base import Pieces, TokenBatch
from shardpiece.shards.rows import join_rows, slice_rows, take_rows, without_empty_rows
from shardpiece.shards.shuffle import Shuffle, sequence_keys
from shardpiece.shards.spool import RowSpool


def batch_of(rows, start, dtype=np.uint16):
    """Rows with everything a batch can have; metadata and pieces tell the row."""
    numbers = list(range(start, start + len(rows)))
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    pieces = [[(n, f"p{n}"), (n + 1, None)][: n % 3] for n in numbers]
    return TokenBatch(
        np.array([token for row in rows for token in row], dtype),
        offsets,
        pa.array([None if n % 7 == 3 else f"id {n}" for n in numbers], pa.string()),
        pa.RecordBatch.from_pydict(
            {"n": pa.array(numbers, pa.int32()), "s": pa.array(["x" * (n % 5) for n in numbers], pa.string())}
        ),
        Pieces(
            np.concatenate([[0], np.cumsum([len(p) for p in pieces], dtype=np.int64)]),
            np.array([end for p in pieces for end, _ in p], np.int64),
            pa.array([name for p in pieces for _, name in p], pa.string()),
        ),
    )


def read(batches):
    rows = []
    for batch in batches:
        tokens = np.split(batch.tokens, batch.offsets[1:-1])
        ends = np.split(batch.pieces.ends, batch.pieces.offsets[1:-1])
        names = batch.pieces.ids.to_pylist()
        ids = np.split(np.array(names, object), batch.pieces.offsets[1:-1])
        rows += [
            (t.tolist(), i, m, list(zip(e.tolist(), p.tolist(), strict=True)))
            for t, i, m, e, p in zip(
                tokens, batch.ids.to_pylist(), batch.metadata.to_pylist(), ends, ids, strict=True
            )
        ]  # fmt: skip
    return rows


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(st.integers(0, 65535), max_size=6), st.integers(0, 5)), max_size=40), st.data())
def test_rows_come_in_the_order_of_their_keys(case, data):
    rows, keys = [row for row, _ in case], [key << 61 for _, key in case]
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=4).map(sorted))
    shuffle = Shuffle(data.draw(st.sampled_from([1, 500, 5000, 1 << 20])))
    for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        shuffle.add(batch_of(rows[a:b], a), np.array(keys[a:b], np.uint64))
    original = read([batch_of(rows, 0)]) if rows else []
    assert read(shuffle.finish()) == [original[i] for i in sorted(range(len(rows)), key=lambda i: keys[i])]


def test_rows_taken_joined_and_sliced_keep_what_belongs_to_them():
    rows = [[i] * (i % 4) for i in range(30)]
    batch = batch_of(rows, 0)
    whole = read([batch])
    assert read([take_rows(batch, np.array([5, 29, 3]))]) == [whole[i] for i in (5, 29, 3)]
    assert read([slice_rows(batch, 7, 20)]) == whole[7:20]
    assert read([slice_rows(slice_rows(batch, 7, 20), 3, 5)]) == whole[10:12]
    assert read([join_rows([slice_rows(batch, 20, 30), slice_rows(batch, 4, 6)])]) == whole[20:] + whole[4:6]
    assert len(slice_rows(batch, 4, 4)) == 0
    full = without_empty_rows(batch)
    assert [len(t) for t in np.split(full.tokens, full.offsets[1:-1])] == [i % 4 for i in range(30) if i % 4]
    assert full.ids.to_pylist() == [name for row, name, *_ in whole if row]


def test_batches_end_where_they_may_and_are_small():
    rows = [[i] * (i % 11) for i in range(2000)]
    for memory in (2000, 40_000, 1 << 24):
        with RowSpool(memory) as spool:
            for start in range(0, 2000, 130):
                spool.add(batch_of(rows[start : start + 130], start))
            assert spool.lengths().tolist() == [i % 11 for i in range(2000)]
            order = np.random.default_rng(0).permutation(2000)[:1900]
            ends = np.array([*range(3, 1900, 3), 1900])
            batches = list(spool.take(order, ends))
            assert (spool.spilled_bytes > 0) == (memory < 1 << 24)
        numbers = [batch.metadata["n"].to_pylist() for batch in batches]
        assert [n for batch in numbers for n in batch] == order.tolist()
        assert all(len(batch) % 3 == 0 for batch in numbers[:-1])
        if memory == 2000:
            assert max(map(len, numbers)) <= 6


def test_a_shuffle_that_is_given_up_leaves_no_file(tmp_path, monkeypatch):
    opened = []
    original = spools.tempfile.TemporaryFile
    monkeypatch.setattr(spools.tempfile, "TemporaryFile", lambda **k: opened.append(original(**k)) or opened[-1])
    rows = [[1, 2, 3]] * 100

    def filled():
        shuffle = Shuffle(100, str(tmp_path))
        shuffle.add(batch_of(rows, 0), np.arange(100, dtype=np.uint64))
        return shuffle

    filled().close()
    batches = filled().finish()
    next(batches)
    assert len(opened) == 3  # the rows, twice, and the windows of the second
    assert list(tmp_path.iterdir()) == []
    batches.close()
    assert all(file.closed for file in opened)


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    class Full:
        def seek(self, position):
            pass

        def write(self, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self):
            pass

    monkeypatch.setattr(spools.tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(OutputError, match=rf"in {tmp_path}, cannot be written \(No space left on device\)"):
        RowSpool(10, str(tmp_path)).add(batch_of([[1]] * 9, 0))
    monkeypatch.undo()
    with pytest.raises(OutputError, match=r"nowhere, cannot be written"):
        RowSpool(10, str(tmp_path / "nowhere")).add(batch_of([[1]] * 9, 0))


def test_spark_says_where_temporary_files_go(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'none'},{tmp_path}")
    used = []
    original = spools.tempfile.TemporaryFile
    monkeypatch.setattr(spools.tempfile, "TemporaryFile", lambda **k: used.append(k["dir"]) or original(**k))
    with RowSpool(10) as spool:
        spool.add(batch_of([[1]] * 9, 0))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "")
    with RowSpool(10) as spool:
        spool.add(batch_of([[1]] * 9, 0))
    assert used == [str(tmp_path), spools.tempfile.gettempdir()]


def test_batches_that_differ_are_an_error():
    with RowSpool(1000) as spool:
        spool.add(batch_of([[1]], 0))
        with pytest.raises(ShardpieceError, match="type of their tokens"):
            spool.add(batch_of([[1]], 1, np.int32))


def test_sequence_keys():
    keys = sequence_keys(7, "shard-00000", 0, 10_000)
    assert keys.dtype == np.uint64
    assert len(set(keys.tolist())) == 10_000
    assert sequence_keys(7, "shard-00000", 40, 3).tolist() == keys[40:43].tolist()
    assert not set(sequence_keys(8, "shard-00000", 0, 100)) & set(sequence_keys(7, "shard-00001", 0, 100)) & set(keys)
    # Frozen: other keys would be another order of every corpus that was made with them.
    assert keys[:2].tolist() == [13971794620706410809, 4542447379388152562]
    assert np.abs(np.corrcoef(np.argsort(keys), np.arange(10_000))[0, 1]) < 0.05


MEASURE = """
import resource, sys
import numpy as np, pyarrow as pa
from shardpiece.shards.formats.base import TokenBatch
from shardpiece.shards.packing import Packer, Packing
from shardpiece.shards.rows import join_rows, slice_rows, take_rows, without_empty_rows
from shardpiece.shards.shuffle import Shuffle

def batches():
    for start in range(0, 100_000, 2000):  # 80 MB
        tokens = np.full(2000 * 400, start % 60000, np.uint16)
        yield TokenBatch(tokens, np.arange(2001) * 400, pa.array([f"document {start + i}" for i in range(2000)]))

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
memory = 16 << 20
for batch in Packer(Packing("best_fit", 1000, pad_id=0), memory).add(next(batches())): pass
before = peak()
shuffle, packer = Shuffle(memory // 2), Packer(Packing("best_fit", 1000, pad_id=0), memory // 2)
rng = np.random.default_rng(0)
for batch in batches():
    shuffle.add(batch, rng.integers(0, 1 << 63, 2000).astype(np.uint64))
for batch in shuffle.finish():
    packer.add(batch)
tokens = sum(int(batch.pieces.ends[batch.pieces.offsets[1:] - 1].sum()) for batch in packer.finish().batches)
print(tokens, peak() - before)
"""


def test_memory_does_not_grow_with_the_shard():
    run = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    tokens, megabytes = map(int, run.stdout.split())
    assert tokens == 40_000_000
    assert megabytes < 40, megabytes
