"""Encoding against the plain-Python reference, and decoding back."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardpiece
from shardpiece.errors import ConfigError, DocumentError, FormatError
from shardpiece.text.documents import Documents
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.tokenizer import word_cache_kernels
from shardpiece.tokenizer.bpe import BPEEncoder, BPEModel
from shardpiece.tokenizer.tokenizer import Tokenizer
from tests.conftest import TEXTS
from tests.tokenizer import reference

CORPUS = [text or "" for text in TEXTS]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    words = shardpiece.WordTable.from_texts(CORPUS * 3, "cl100k_base")
    return shardpiece.train_bpe(words, 600, special_tokens=["<|endoftext|>", "<|pad|>"])


def random_model(seed: int, letters: bytes = b"abc", merges: int = 40) -> BPEModel:
    """A model with merges in no natural order: ids and priorities differ, some merges repeat a token."""
    rng = random.Random(seed)
    vocab = [bytes([b]) for b in range(256)]
    pairs: list[tuple[int, int]] = []
    pool = list(letters)
    for _ in range(merges):
        a, b = rng.choice(pool), rng.choice(pool)
        joined = vocab[a] + vocab[b]
        if joined not in vocab:
            vocab.append(joined)
            pool.append(len(vocab) - 1)
        pairs.append((a, b))
    rng.shuffle(pairs)
    return BPEModel(tuple(vocab), np.array(pairs, np.int32))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.lists(st.sampled_from(b"abcd"), max_size=400).map(bytes), max_size=6))
def test_equals_the_reference_for_any_merges(seed, words):
    model = random_model(seed)
    encoder = BPEEncoder(model, cache_bytes=1 << 12)
    merges = [tuple(pair) for pair in model.merges.tolist()]
    whole = Tokenizer(PreTokenizer(r"(?s).+"), model)
    tokens, offsets = encoder.encode(_words(whole, words))
    for d, word in enumerate(words):
        assert tokens[offsets[d] : offsets[d + 1]].tolist() == reference.encode_word(word, model.vocab, merges)


def _words(tokenizer, words):
    return tokenizer.pretokenizer.split(Documents.from_strings([word.decode() for word in words]))


@pytest.mark.parametrize("length", [1, 2, 47, 48, 49, 255, 256, 257, 1000])
def test_short_and_long_words_meet(tokenizer, length):
    merges = [tuple(pair) for pair in tokenizer.model.merges.tolist()]
    rng = random.Random(length)
    for letters in ("a", "=", "aeinrst"):
        word = "".join(rng.choice(letters) for _ in range(length))
        assert tokenizer.encode(word) == reference.encode_word(word.encode(), tokenizer.model.vocab, merges)


def test_a_megabyte_of_one_letter_is_not_quadratic(tokenizer):
    text = "a" * 1_000_000
    assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=200))
def test_decode_gives_the_text_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode_bytes(tokenizer.encode(text)) == text.encode()


def test_text_that_spells_a_special_token_is_text(tokenizer):
    ids = tokenizer.encode("a <|endoftext|> b")
    assert tokenizer.special_id("<|endoftext|>") not in ids
    assert tokenizer.decode(ids) == "a <|endoftext|> b"
    assert tokenizer.decode([tokenizer.special_id("<|pad|>")]) == "<|pad|>"
    assert tokenizer.special_id("<|endoftext|>") == tokenizer.vocab_size - 2


def test_encode_batch(tokenizer):
    batch = tokenizer.encode_batch(CORPUS)
    assert batch.type == pa.list_(pa.int32())
    assert batch.to_pylist() == [tokenizer.encode(text) for text in CORPUS]
    column = pa.array(["low", None, ""])
    assert tokenizer.encode_batch(column).to_pylist() == [tokenizer.encode("low"), None, []]
    assert tokenizer.encode_batch(pa.chunked_array([column, column])).to_pylist() == 2 * [
        tokenizer.encode("low"),
        None,
        [],
    ]
    assert tokenizer.encode_batch(pa.array([b"\xff"])).to_pylist() == [tokenizer.encode("\ufffd")]
    assert tokenizer.encode_batch([]).to_pylist() == []
    assert tokenizer.encode("\ud800") == tokenizer.encode("\ufffd")


def test_the_cache_is_bounded_and_does_not_change_results(tokenizer):
    small = BPEEncoder(tokenizer.model, cache_bytes=4096)
    documents = Documents.from_strings([f"word{i} other{i * 7}" for i in range(2000)] * 2)
    words = tokenizer.pretokenizer.split(documents)
    tokens, offsets = small.encode(words)
    expected, expected_offsets = BPEEncoder(tokenizer.model).encode(words)
    assert small.state[word_cache_kernels.STATE_SHORT_MISSES] > len(
        {w for d in words.to_list() for w in d}
    )  # came twice
    assert (tokens == expected).all()
    assert (offsets == expected_offsets).all()


def test_decode_refuses_ids_outside_the_vocabulary(tokenizer):
    for bad in (-1, tokenizer.vocab_size):
        with pytest.raises(ConfigError, match="outside the vocabulary"):
            tokenizer.decode([bad])
    assert tokenizer.decode([int(tokenizer.model.byte_ids[0xE2])]) == "\ufffd"


def test_models_that_cannot_work_are_refused():
    singles = tuple(bytes([b]) for b in range(256))
    with pytest.raises(FormatError, match="same byte string"):
        BPEModel((*singles, b"a"), np.empty((0, 2), np.int32))
    with pytest.raises(FormatError, match="lacks the single bytes"):
        BPEModel(singles[1:], np.empty((0, 2), np.int32))
    with pytest.raises(FormatError, match="not in the vocabulary"):
        BPEModel(singles, np.array([[97, 98]], np.int32))
    with pytest.raises(FormatError, match="outside the vocabulary"):
        BPEModel(singles, np.array([[97, 300]], np.int32))
    model = BPEModel((*singles, b"ab"), np.array([[97, 98]], np.int32))
    with pytest.raises(FormatError, match="ordinary token"):
        Tokenizer(PreTokenizer("gpt2"), model, ("ab",))
    with pytest.raises(ConfigError, match="twice"):
        Tokenizer(PreTokenizer("gpt2"), model, ("<s>", "<s>"))


def test_special_tokens_in_text(tokenizer):
    eos, pad = tokenizer.special_id("<|endoftext|>"), tokenizer.special_id("<|pad|>")
    text = "low<|endoftext|><|pad|>er <|end"
    assert tokenizer.encode(text, "token") == [
        *tokenizer.encode("low"), eos, pad, *tokenizer.encode("er <|end"),
    ]  # fmt: skip
    assert tokenizer.decode(tokenizer.encode(text, "token")) == text
    assert tokenizer.encode(text, "text") == tokenizer.encode(text)
    assert eos not in tokenizer.encode(text)
    batch = ["low", None, "", "<|pad|>", text, "x<|pad|>"]
    encoded = tokenizer.encode_batch(batch, "token").to_pylist()
    assert encoded == [None if one is None else tokenizer.encode(one, "token") for one in batch]
    with pytest.raises(DocumentError, match=r"document 1: the text spells the special token '<\|pad\|>' at byte 1"):
        tokenizer.encode_batch(["low", "x<|pad|>"], "error")
    assert tokenizer.encode("low", "error") == tokenizer.encode("low")
    with pytest.raises(ConfigError, match="not one of text, token, error"):
        tokenizer.encode("low", "ids")


@pytest.mark.parametrize("token", ["", "\ud800x", 5, "x" * 513])
def test_special_tokens_are_checked(tokenizer, token):
    with pytest.raises(ConfigError, match="special token"):
        Tokenizer(tokenizer.engine, tokenizer.model, (token,))


@pytest.mark.parametrize("given", [b"x", None, 5])
def test_what_is_no_text_is_refused(tokenizer, given):
    with pytest.raises(TypeError, match="expected texts, not"):
        tokenizer.encode(given)
