"""On real multilingual text and code: the peers' trainers and encoders agree with us, all merges, all tokens."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.config import load_config
from shardpiece.pipeline.count import count
from shardpiece.pipeline.encode.stage import encode
from shardpiece.pipeline.train import train
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.formats import tiktoken
from shardpiece.tokenizer.shard_decoding import decoded_documents
from tests.conftest import input_rows
from tests.training.test_bpe import hugging_face_merges, rustbpe_tokens, spelled_merges

SAMPLE_BYTES = 21_000_000
VOCAB_SIZE = 32_768


@pytest.fixture(scope="module")
def texts(shared) -> list[str]:
    """More than 20 MB: documents spread over all groups of the corpus."""
    table = pa.concat_tables([pq.read_table(p, columns=["text"]) for p in sorted(shared.glob("corpus/*/*.parquet"))])
    step = table["text"].nbytes // SAMPLE_BYTES
    sample = table["text"].take(pa.array(range(0, len(table), step))).to_pylist()
    assert sum(len(text.encode()) for text in sample) > 20_000_000
    return sample


@pytest.fixture(scope="module")
def words(texts):
    return shardpiece.WordTable.from_texts(texts, "cl100k_base")


@pytest.fixture(scope="module")
def tokenizer(words):
    return shardpiece.train_bpe(words, VOCAB_SIZE, tie_break="id")


def test_merges_equal_hugging_face(texts, words, tokenizer):
    pytest.importorskip("tokenizers")
    assert tokenizer.vocab_size == VOCAB_SIZE
    expected = hugging_face_merges(texts, words.engine.pretokenizer.pattern, VOCAB_SIZE)
    assert len(expected) == VOCAB_SIZE - 256
    assert spelled_merges(tokenizer) == expected


def test_merges_equal_rustbpe(texts, words):
    pytest.importorskip("rustbpe")
    ours = shardpiece.train_bpe(words, VOCAB_SIZE, tie_break="id", alphabet_order="raw")
    assert list(ours.model.vocab) == rustbpe_tokens(texts, words.engine.pretokenizer.pattern, VOCAB_SIZE)


def test_encodings_equal_hugging_face(texts, tokenizer, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    artifact.save(tokenizer, str(tmp_path))
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = tokenizer.encode_batch(texts)
    for first in range(0, len(texts), 2000):
        encoded = peer.encode_batch_fast(texts[first : first + 2000])
        assert ours.slice(first, 2000).to_pylist() == [e.ids for e in encoded]


def test_encodings_equal_tiktoken(texts, tokenizer):
    peer = pytest.importorskip("tiktoken").Encoding(
        "ours", pat_str=tokenizer.pretokenizer.pattern, mergeable_ranks=tiktoken.ranks(tokenizer), special_tokens={}
    )
    ours = tokenizer.encode_batch(texts)
    for first in range(0, len(texts), 2000):
        encoded = peer.encode_ordinary_batch(texts[first : first + 2000])
        assert ours.slice(first, 2000).to_pylist() == encoded


def test_shards_decode_to_the_input_bytes(session, shared, tmp_path):
    """Count, train 32,768 and encode part of the corpus; every document comes back, in order, byte for byte."""
    inputs = [str(shared / "corpus" / "code"), str(shared / "corpus" / "web_multilingual" / "part-00000.parquet")]
    config = load_config(
        None,
        {
            "input": inputs,
            "output": str(tmp_path),
            "id_column": "id",
            "group_column": "lang",
            "train.vocab_size": VOCAB_SIZE,
            "encode.shard_size": "16MB",
        },
    )
    for report in (count(session, config), train(config), encode(session, config)):
        assert not report.skipped
    decoded = decoded_documents(config.shards_path, shardpiece.load(config.tokenizer_path))
    rows = input_rows(shared / "corpus" / "code") + pq.read_table(inputs[1]).to_pylist()
    n = 0
    for row, (name, _, raw) in zip(rows, decoded, strict=True):
        assert name == row["id"]
        assert raw == row["text"].encode()
        n += 1
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    assert manifest["totals"]["documents"] == n > 10_000
