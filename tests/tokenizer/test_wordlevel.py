"""Whole words by their id, against a dictionary and against the tokenizers library."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import FormatError
from shardpiece.text.documents import Documents, Words
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.tokenizer.wordlevel import WordLevelModel
from tests.conftest import TEXTS

CORPUS = [text or "" for text in TEXTS]


def of_words(documents: list[list[bytes]]) -> Words:
    """Words as a pre-tokenizer hands them over, not at the beginning of their array."""
    flat = [word for words in documents for word in words]
    data = np.frombuffer(b"#" + b"".join(flat), np.uint8)
    ends = np.cumsum([1, *map(len, flat)])[1:].astype(np.int64)
    return Words(data, 1, ends, np.cumsum([len(words) for words in documents]).astype(np.int64))


def encoded(model, documents: list[list[bytes]]) -> list[list[int]]:
    tokens, offsets = model.encoder().encode(of_words(documents))
    assert (tokens.dtype, offsets.dtype) == (np.int32, np.int64)
    return [tokens[offsets[d] : offsets[d + 1]].tolist() for d in range(len(documents))]


some_words = st.lists(st.sampled_from(b"ab\xff").flatmap(lambda c: st.integers(1, 9).map(lambda n: bytes([c, 97] * n))))


@settings(max_examples=100, deadline=None)
@given(some_words, st.lists(some_words, max_size=4))
def test_equals_a_dictionary(vocab, documents):
    vocab = (None, *dict.fromkeys(vocab))
    ids = {word: i for i, word in enumerate(vocab) if word}
    expected = [[ids.get(word, 0) for word in words] for words in documents]
    assert encoded(WordLevelModel(vocab, 0), documents) == expected


def test_equals_the_tokenizers_library():
    tokenizers = pytest.importorskip("tokenizers")
    pretokenizer = PreTokenizer("whitespace")
    words = pretokenizer.split(Documents.from_strings(CORPUS))
    vocab = ["[UNK]", *sorted({w for words in words.to_texts()[::2] for w in words})]
    peer = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: i for i, w in enumerate(vocab)}, "[UNK]"))
    peer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model = WordLevelModel((None, *(word.encode() for word in vocab[1:])), 0)
    tokens, offsets = model.encoder().encode(words)
    expected = [peer.encode(text).ids for text in CORPUS]
    assert [tokens[a:b].tolist() for a, b in pairwise(offsets)] == expected
    assert 0 in tokens


def test_a_megabyte_and_every_length():
    vocab = (None, *(b"a" * n for n in range(1, 40)), b"b" * 1_000_000)
    documents = [[b"a" * n for n in range(1, 42)], [b"b" * 1_000_000, b"b" * 999_999], []]
    assert encoded(WordLevelModel(vocab, 0), documents) == [[*range(1, 40), 0, 0], [40, 0], []]


def test_models_that_cannot_work_are_refused():
    with pytest.raises(FormatError, match="same byte string"):
        WordLevelModel((None, b"a", b"a"), 0)
    for unk in (None, -1, 1):
        with pytest.raises(FormatError, match="unknown token"):
            WordLevelModel((b"a",), unk)
    model = WordLevelModel((None, b"a"), 0)
    assert (len(model), model.pieces(), model.kind) == (2, [None, b"a"], "word")
    assert b"".join(model.identity()) != b"".join(WordLevelModel((None, b"b"), 0).identity())
    assert b"".join(model.identity()) != b"".join(WordLevelModel((None, b"a"), 1).identity())
