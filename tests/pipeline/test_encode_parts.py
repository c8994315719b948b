"""What the encode stage is made of, without Spark: chunks, ids on their way into a shard, and the words workers begin with."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.corpus.base import Columns
from shardpiece.corpus.order import Placement
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import plan_input, read_batches
from shardpiece.errors import ConfigError, FormatError, ShardpieceError
from shardpiece.pipeline.encode.documents import DocumentEncoder, Encoding, WorkerTokenizer, chunks
from shardpiece.pipeline.encode.warm_words import _Candidates, warm_words
from shardpiece.pipeline.tasks import Counters
from shardpiece.shards.plan import plan_shards
from shardpiece.shards.token_buffer import TokenBuffer
from shardpiece.storage import pretty_json
from shardpiece.text.documents import Documents
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.sampling import Sampling, document_keys
from shardpiece.words import table as words
from tests.conftest import TEXTS, corpus_rows, write_corpus

CORPUS = [text or "" for text in TEXTS]


@pytest.mark.parametrize("sizes", [[], [0, 0], [5], [3 << 20], [0, 700_000, 700_000, 0, 0, 5, 2 << 20, 1, 0]])
def test_chunks_cover_all_documents_once(sizes):
    offsets = np.append(7, 7 + np.cumsum(sizes)).astype(np.int64)
    documents = Documents(np.zeros(int(offsets[-1]), np.uint8), offsets)
    seen = []
    for first, chunk in chunks(documents):
        assert first == len(seen)
        assert len(chunk) == 1 or chunk.size <= 1 << 20
        seen += np.diff(chunk.offsets).tolist()
    assert seen == sizes


@pytest.mark.parametrize("dtype", ["<i4", "<u2", "<u4"])
@pytest.mark.parametrize("keep_empty", [True, False])
@pytest.mark.parametrize(("before", "after"), [((), ()), ((), (9,)), ((7, 8), (9,))])
def test_ids_go_into_the_shard_as_they_are(dtype, keep_empty, before, after):
    generator = np.random.default_rng(3)
    expected, ends = [], []
    buffer = TokenBuffer(np.dtype(dtype), 60_000, before, after, keep_empty, 40, 30)
    for _ in range(4):
        sizes = generator.integers(0, 6, 10) * generator.integers(0, 2, 10)
        offsets = np.append(0, np.cumsum(sizes))
        tokens = generator.integers(0, 60_000, offsets[-1]).astype(np.int32)
        buffer.add(tokens, offsets, offsets * 3)
        for d in range(10):
            if sizes[d] or keep_empty:
                expected += [*before, *tokens[offsets[d] : offsets[d + 1]].tolist(), *after]
                ends.append(len(expected))
    got, offsets = buffer.take()
    assert got.dtype == np.dtype(dtype)
    assert got.tolist() == expected
    assert offsets.tolist() == [0, *ends]


@pytest.mark.parametrize("bad", [-1, 300, 65_536, 2**31 - 1])
def test_an_id_outside_the_vocabulary_is_never_taken(bad):
    buffer = TokenBuffer(np.dtype("<u2"), 300, (), (), True, 1, 10)
    with pytest.raises(ShardpieceError, match=f"token id {bad}, outside the vocabulary of 300"):
        buffer.add(np.array([1, bad, 2], np.int32), np.array([0, 3]), np.array([0, 3]))


def write_table(directory, rows: list[list[tuple[bytes, str, int]]], engine) -> str:
    """A word table of such parts on disk."""
    directory.mkdir()
    files = []
    for i, part in enumerate(rows):
        name = f"part-{i:05}.parquet"
        columns = [pa.array(list(column), kind) for column, kind in
                   zip(zip(*part, strict=True), words.SCHEMA.types, strict=True)]  # fmt: skip
        pq.write_table(pa.Table.from_arrays(columns, schema=words.SCHEMA), directory / name)
        files.append({"name": name, "bytes": 1, "rows": len(part)})
    manifest = {
        "format": words.FORMAT, "version": words.VERSION, "key": "k", "fingerprint": "f", "engine": engine.spec,
        "engine_fingerprint": engine.fingerprint, "files": files, "statistics": {}, "distinct_words": 1,
        "special_tokens": [],
    }  # fmt: skip
    (directory / "words.json").write_bytes(pretty_json(manifest))
    return str(directory)


@pytest.fixture(scope="module")
def tokenizer():
    return shardpiece.train_bpe(shardpiece.WordTable.from_texts(CORPUS, "gpt2"), 300)


def test_the_most_frequent_words_are_taken(tmp_path, tokenizer):
    parts = [
        [(b"a", "x", 5), (b"b", "x", 3), (b"c", "x", 1), (b"d", "x", 4)],
        [(b"d", "y", 4), (b"d", "z", 1), (b"e", "x", 5)],
        [(b"f" * 65, "x", 100), (b"g", "x", 2), (b"h", "x", 1)],
    ]
    path = write_table(tmp_path / "words", parts, tokenizer.engine)
    found = warm_words(path, tokenizer, 1 << 20, required=True)
    assert found.data.tobytes() == b"gbead"
    assert found.ends.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("most", [0, 1, 40, 333, 10**6])
def test_any_cut_into_parts_gives_the_same_words(most, monkeypatch):
    generator = np.random.default_rng(most)
    counts = {f"{i:x}".encode() * (1 + i % 3): int(generator.integers(1, 12)) for i in range(200)}
    table = sorted(counts.items())
    expected, size = [], 0
    for word, count in sorted(table, key=lambda entry: (-entry[1], entry[0])):
        size += len(word)
        if count < 2 or size > most:
            break
        expected.append(word)
    monkeypatch.setattr("shardpiece.pipeline.encode.warm_words._TAKEN", 7)
    for pieces in (1, 2, 5, 60):
        kept = _Candidates(most)
        for part in np.array_split(np.arange(len(table)), pieces):
            chosen = [table[i] for i in part]
            data = np.frombuffer(b"".join(word for word, _ in chosen), np.uint8)
            starts = np.cumsum([0, *(len(word) for word, _ in chosen)])
            kept.add(data, starts, np.array([count for _, count in chosen]))
        found = kept.words()
        starts = [0, *found.ends.tolist()]
        got = [found.data[a:b].tobytes() for a, b in zip(starts, found.ends.tolist(), strict=False)]
        assert got == expected[::-1]


def test_words_known_before_change_no_id(tmp_path, tokenizer):
    counted = shardpiece.WordTable.from_texts(CORPUS * 2, "gpt2").table.to_pylist()
    rows = [(row["word"], row["group"], row["count"]) for row in counted]
    path = write_table(tmp_path / "words", [rows], tokenizer.engine)
    found = warm_words(path, tokenizer, 1 << 20, required=True)
    assert len(found) > 50
    worker = WorkerTokenizer(packed.pack(tokenizer), found, 1 << 20)
    warm, cold = worker.build(), worker.without_words()
    assert [warm.encode(text) for text in CORPUS] == [cold.encode(text) for text in CORPUS]
    assert worker.key != WorkerTokenizer(packed.pack(tokenizer), None, 1 << 20).key


def test_a_table_that_does_not_fit_is_an_error_only_when_it_was_named(tmp_path, tokenizer):
    other = write_table(tmp_path / "words", [[(b"a", "", 2)]], shardpiece.TextEngine("cl100k_base"))
    assert warm_words(other, tokenizer, 1 << 20, required=False) is None
    assert warm_words(str(tmp_path / "none"), tokenizer, 1 << 20, required=False) is None
    with pytest.raises(ConfigError, match=r"encode\.warm_words: .* another text engine"):
        warm_words(other, tokenizer, 1 << 20, required=True)
    with pytest.raises(FormatError, match="no word table here"):
        warm_words(str(tmp_path / "none"), tokenizer, 1 << 20, required=True)


def test_sampled_ids_depend_on_the_document_alone(tmp_path, tokenizer):
    """Whatever the batches, chunks and columns read with it, a document has the ids of its own key."""

    class Value:
        def __init__(self, value=None):
            self.value = value

        def add(self, _):
            pass

    sampling = Sampling(dropout=0.3, seed=9, epoch=2)
    worker = WorkerTokenizer(packed.pack(tokenizer), None, 1 << 20)
    rows = corpus_rows(2)
    expected = {}
    for row in rows:
        keys = document_keys([row["id"]], sampling)
        documents = Documents.from_strings([row["text"] or ""])
        expected[row["id"]] = tokenizer.encode_documents(documents, "text", sampling, keys)[0].tolist()
    plain = [tokenizer.encode(row["text"] or "") for row in rows]
    assert [expected[row["id"]] for row in rows] != plain
    columns = Columns("text", "id")
    for size in (3, 100):
        corpus = write_corpus(tmp_path / str(size), rows, files=1, row_group_size=size)
        plan = plan_input(list_files([str(corpus)]), columns)
        shards = plan_shards(plan.splits, 1 << 30)
        encoder = DocumentEncoder(plan.selection, "replace", np.dtype(np.int32), True,
                                  Encoding("text", (), (), True, sampling), Placement(), Value(worker), worker.key,
                                  Counters(*[Value()] * 4))  # fmt: skip
        got = {}
        for encoded in encoder.encode(read_batches(shards[0].splits, plan.selection)):
            batch = encoded.written()
            for i, name in enumerate(batch.ids.to_pylist()):
                got[name] = batch.tokens[batch.offsets[i] : batch.offsets[i + 1]].tolist()
        assert got == expected
