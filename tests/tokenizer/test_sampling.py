"""Settings of sampling, the keys of documents, and the random numbers made of them."""

import numpy as np
import pyarrow as pa
import pytest
import xxhash

import shardpiece
from shardpiece.errors import ConfigError
from shardpiece.text.documents import Documents
from shardpiece.tokenizer import sampling_kernels as k
from shardpiece.tokenizer.sampling import Sampling, document_keys, keys_of, piece_keys
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.tokenizer.wordlevel import WordLevelModel


@pytest.mark.parametrize(
    "setting",
    [
        {"dropout": -0.1}, {"dropout": 1}, {"dropout": float("nan")}, {"dropout": "0.1"}, {"dropout": True},
        {"alpha": 0}, {"alpha": -1.0}, {"alpha": float("inf")}, {"alpha": "1"}, {"alpha": 1.0, "nbest": 0},
        {"alpha": 1.0, "nbest": -2}, {"alpha": 1.0, "nbest": 1.5}, {"seed": 2**63}, {"seed": None}, {"epoch": 0.5},
        {"dropout": 0.1, "alpha": 0.1},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(setting):
    with pytest.raises(ConfigError, match="sampling: "):
        Sampling(**setting)


def test_what_is_deterministic():
    assert Sampling().deterministic
    assert Sampling(alpha=0.5, nbest=1).deterministic
    assert not Sampling(dropout=0.1).deterministic
    assert not Sampling(alpha=0.5).deterministic
    assert not Sampling(alpha=0.5, nbest=8).deterministic
    assert Sampling(alpha=0.5, nbest=None) == Sampling(alpha=0.5, nbest=-1)


def test_keys_are_of_seed_epoch_and_id_alone():
    sampling = Sampling(seed=7, epoch=2)
    keys = document_keys(["a", "b", "日本"], sampling)
    assert keys.dtype == np.uint64
    assert keys.tolist() == [xxhash.xxh64_intdigest(b"7,2," + raw) for raw in (b"a", b"b", "日本".encode())]
    assert document_keys(pa.array(["日本", "a"]), sampling).tolist() == [keys[2], keys[0]]
    assert document_keys([12, np.int32(12), b"12"], sampling).tolist() == [document_keys(["12"], sampling)[0]] * 3
    others = [Sampling(seed=8, epoch=2), Sampling(seed=7, epoch=3), Sampling(seed=72), Sampling(seed=-7, epoch=2)]
    assert len({document_keys(["a"], one)[0] for one in (sampling, *others)}) == 5
    for wrong in (None, 1.0, True):
        with pytest.raises(ConfigError, match="the id of document 1"):
            document_keys(["a", wrong], sampling)


def test_random_numbers_are_those_of_splitmix64():
    # The first numbers for the seed 1234567, as published with the algorithm's many implementations.
    key = np.uint64(1234567)
    for expected in (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431):
        assert k.uniform(key) == (expected >> 11) / 2**53
        key = np.uint64(k.next_key(key))
    assert k.uniform(np.uint64(2**64 - int(k.GAMMA))) == 0.0


def test_streams_of_words_and_pieces_do_not_repeat():
    keys = np.array([1, 2], np.uint64)
    pieces = piece_keys(keys, np.array([0, 0, 0, 1, 1]))
    assert pieces[[0, 3]].tolist() == [1, 2]
    words = [k.part_key(key, i) for key in pieces for i in range(100)]
    assert len({*words, *pieces.tolist()}) == 505
    draws = np.array([k.uniform(np.uint64(key)) for key in words])
    assert abs(draws.mean() - 0.5) < 0.06  # 0.013 is one standard deviation


def test_keys_of_a_batch():
    assert keys_of(3, None, None) is None
    assert keys_of(2, Sampling(), None).tolist() == document_keys(["0", "1"], Sampling()).tolist()
    with pytest.raises(ConfigError, match="3 keys are given for 2 documents"):
        keys_of(2, Sampling(), np.arange(3, dtype=np.uint64))


class Recorder:
    """An encoder of words that are all unknown, which keeps what it was called with."""

    def encode(self, words):
        n = len(words.ends)
        return np.zeros(n, np.int32), np.append(0, words.document_ends)

    def encode_sampled(self, words, sampling, keys):
        self.given = (len(words.document_ends), sampling, keys.tolist())
        return self.encode(words)


def test_a_tokenizer_gives_every_piece_its_key():
    model, recorder = WordLevelModel((None, b"a"), 0), Recorder()
    tokenizer = Tokenizer("whitespace", model, {"<s>": 0})
    object.__setattr__(tokenizer, "_encoder", recorder)
    documents = Documents.from_strings(["a<s>a<s>", "a"])
    keys = document_keys(["x", "y"], Sampling())
    with pytest.raises(ConfigError, match="dropout is for BPE models"):
        tokenizer.encode_documents(documents, sampling=Sampling(dropout=0.5))
    assert tokenizer.encode_documents(documents, sampling=Sampling(), keys=keys)[1].tolist() == [0, 8, 9]
    object.__setattr__(model, "kind", "bpe")
    sampling = Sampling(dropout=0.5)
    tokenizer.encode_documents(documents, "text", sampling, keys)
    assert recorder.given == (2, sampling, keys.tolist())
    tokenizer.encode_documents(documents, "token", sampling, keys)
    assert recorder.given == (4, sampling, piece_keys(keys, np.array([0, 0, 0, 1])).tolist())


def test_batches_are_sampled_by_the_ids_of_their_documents():
    words = shardpiece.WordTable.from_texts(["low lower lowest newest widest"] * 3, "gpt2")
    tokenizer = shardpiece.train_bpe(words, 290)
    texts, ids = ["lowest newest widest " * 20, None, "lower newest lower " * 20], ["a", "b", "c"]
    drawn = shardpiece.Sampling(dropout=0.5, seed=7)
    once = tokenizer.encode_batch(texts, sampling=drawn, document_ids=ids).to_pylist()
    assert once[1] is None
    assert once != tokenizer.encode_batch(texts).to_pylist()
    assert [tokenizer.decode(tokens) for tokens in (once[0], once[2])] == [texts[0], texts[2]]
    turned = tokenizer.encode_batch(texts[::-1], sampling=drawn, document_ids=ids[::-1]).to_pylist()
    assert turned == once[::-1]
    assert once[0] != tokenizer.encode_batch(texts[:1], sampling=drawn, document_ids=["z"]).to_pylist()[0]
