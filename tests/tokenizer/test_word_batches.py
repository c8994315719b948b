"""Words that are encoded many at a time (``batch_kernels``): each as its definition says, whatever is beside it."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.tokenizer import batch_kernels
from shardpiece.tokenizer.bpe import BPEModel
from tests.tokenizer.test_bpe_models import BYTE_PIECES, by_definition, encoded

seeds = st.integers(0, 10**6)
HAN = "漢字仮名é "
"""Characters of three, two bytes and one; the first two bytes of the first four are not all different."""


def model_of_bytes(seed: int, letters: bytes, merges: int = 60, ranks: bool = False) -> BPEModel:
    """Merges of bytes in no natural order, within characters and across them, some of no valid UTF-8."""
    rng = random.Random(seed)
    vocab = [bytes([b]) for b in range(256)]
    rng.shuffle(vocab)
    pool = [vocab.index(bytes([b])) for b in sorted(set(letters))]
    pairs = []
    for _ in range(merges):
        a, b = rng.choice(pool), rng.choice(pool)
        if vocab[a] + vocab[b] not in vocab:
            pool.append(len(vocab))
            vocab.append(vocab[a] + vocab[b])
        pairs.append((a, b))
    if ranks:
        return BPEModel.from_ranks(vocab)
    rng.shuffle(pairs)
    return BPEModel(vocab, np.array(pairs, np.int32), ignore_merges=rng.random() < 0.3)


def model_of_characters(seed: int, unknown: str) -> BPEModel:
    """Of all of HAN but the last of three bytes."""
    rng = random.Random(seed)
    known = HAN.replace("名", "")
    vocab = [c.encode() for c in known]
    pool, pairs = list(range(len(vocab))), []
    for _ in range(40):
        a, b = rng.choice(pool), rng.choice(pool)
        if vocab[a] + vocab[b] not in vocab:
            pool.append(len(vocab))
            vocab.append(vocab[a] + vocab[b])
        pairs.append((a, b))
    if unknown == "bytes":
        return BPEModel(vocab + BYTE_PIECES, np.array(pairs, np.int32), "characters", byte_fallback=True)
    vocab.append(b"<unk>")
    return BPEModel(vocab, np.array(pairs, np.int32), "characters", unk_id=len(vocab) - 1, fuse_unk=unknown == "fused")


def many(seed: int, letters: str, count: int) -> list[bytes]:
    """Words of a few letters each, so that their tokens meet again and again, and of all lengths."""
    rng = random.Random(seed)
    return [
        "".join(rng.choices(rng.sample(letters, min(rng.randint(1, 3), len(letters))), k=rng.randint(1, 40))).encode()
        for _ in range(count)
    ]


@settings(max_examples=40, deadline=None)
@given(seed=seeds, letters=st.sampled_from(["ab", "abc", "a漢", "漢字", HAN]), ranks=st.booleans())
def test_many_words_of_bytes(seed, letters, ranks):
    model = model_of_bytes(seed, letters.encode(), ranks=ranks)
    words = many(seed, letters, 150)
    assert encoded(model, words) == [by_definition(model, word) for word in words]


@settings(max_examples=30, deadline=None)
@given(seed=seeds, unknown=st.sampled_from(["bytes", "fused", "each"]))
def test_many_words_of_characters_some_unknown(seed, unknown):
    model = model_of_characters(seed, unknown)
    words = many(seed, HAN, 150)
    assert encoded(model, words) == [by_definition(model, word) for word in words]


@settings(max_examples=30, deadline=None)
@given(seed=seeds)
def test_tokens_that_are_no_text(seed):
    """Bytes that begin a character followed by what does not go on with it: no word has it, a vocabulary may."""
    letters = "漢".encode() + b"A\xc3\xbf"
    model = model_of_bytes(seed, letters, merges=80)
    words = many(seed, "漢字éA", 60)
    assert encoded(model, words) == [by_definition(model, word) for word in words]


@pytest.mark.parametrize("length", [batch_kernels.BATCH_BYTES + n for n in (-17, -1, 0, 1, 40)])
def test_words_as_long_as_a_batch(length):
    model = model_of_bytes(5, b"ab")
    rng = random.Random(length)
    words = [bytes(rng.choices(b"ab", k=k)) for k in (20, length, 20, 17, length, 30)]
    assert encoded(model, words) == [by_definition(model, word) for word in words]


def test_runs_of_one_letter_of_every_length():
    """Where the longest tokens can hardly ever stand side by side."""
    vocab = [bytes([b]) for b in range(256)] + [b"=" * n for n in range(2, 33)]
    model = BPEModel.from_ranks(vocab)
    words = [b"=" * n for n in range(1, 300)] + [b"=" * n + b"+" + b"=" * (60 - n) for n in range(60)]
    assert encoded(model, words) == [by_definition(model, word) for word in words]


def test_words_that_are_tokens_but_that_merging_does_not_lead_to():
    """Found whole, short and long, and nowhere inside of others."""
    vocab = [bytes([b]) for b in range(256)] + [b"ab", b"abcd" * 3, b"abcd" * 6]
    model = BPEModel.from_ranks(vocab)
    words = [b"abcd" * n for n in range(1, 10)]
    assert [len(ids) for ids in encoded(model, words)] == [3, 6, 1, 12, 15, 1, 21, 24, 27]
    assert encoded(model, words) == [by_definition(model, word) for word in words]
