"""The baselines' vocabularies against sorting in plain Python."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardpiece
from shardpiece.errors import ConfigError
from shardpiece.training.baselines import (
    BYTE_SPECIAL_TOKENS,
    byte_vocabulary,
    character_vocabulary,
    word_vocabulary,
)
from tests.conftest import TEXTS
from tests.training.test_alphabet import arrays

tables = st.lists(
    st.tuples(st.text(st.sampled_from("abé日"), min_size=1, max_size=4), st.sampled_from([1, 1, 2, 3, 2**33])),
    max_size=30,
    unique_by=lambda word: word[0],
)


@settings(max_examples=150, deadline=None)
@given(tables, st.integers(0, 12), st.sampled_from([1, 2, 4]), st.randoms())
def test_words_and_characters_equal_plain_python(table, n, min_frequency, random):
    table = [(word.encode(), count) for word, count in table]
    shuffled = random.sample(table, len(table))
    ranked = sorted((-count, word) for word, count in table if count >= min_frequency)
    words = word_vocabulary(*arrays(shuffled), n, min_frequency=min_frequency)
    assert words == [word for _, word in ranked[:n]]
    characters = Counter()
    for word, count in table:
        for c in word.decode():
            characters[c] += count
    ranked = [c.encode() for c, _ in sorted(characters.items(), key=lambda item: (-item[1], item[0]))]
    assert character_vocabulary(*arrays(shuffled), n) == ranked[:n]
    assert character_vocabulary(*arrays(shuffled), n, by="code_point") == sorted(ranked[:n])
    assert character_vocabulary(*arrays(shuffled)) == ranked


def test_real_words():
    words = shardpiece.WordTable.from_texts([text or "" for text in TEXTS], "whitespace")
    ranked = sorted(words.to_counter().items(), key=lambda item: (-item[1], item[0]))
    for n in (1, 7, 10**6):
        assert word_vocabulary(*words.arrays(), n) == [word for word, _ in ranked[:n]]


def test_choice_of_characters():
    table = arrays([(b"aab", 3), (b"c", 1), (b"d", 1)])
    assert character_vocabulary(*table) == [b"a", b"b", b"c", b"d"]
    assert character_vocabulary(*table, coverage=0.8) == [b"a", b"b"]
    assert character_vocabulary(*table, limit=3) == [b"a", b"b", b"c"]
    assert character_vocabulary(*table, 3, initial="zd") == [b"z", b"d", b"a"]
    assert character_vocabulary(*table, 3, initial="zd", by="code_point") == [b"a", b"d", b"z"]
    with pytest.raises(ConfigError, match="initial alphabet alone has 2"):
        character_vocabulary(*table, 1, initial="zdz")
    with pytest.raises(ConfigError, match="code_point"):
        character_vocabulary(*table, by="bytes")


def test_counts_beyond_32_bits():
    table = arrays([(b"low", 2**32 + 1), (b"high", 2**32 + 2), (b"mid", 2**31)])
    assert word_vocabulary(*table, 2) == [b"high", b"low"]
    assert character_vocabulary(*table, 2) == [b"h", b"i"]
    with pytest.raises(ConfigError, match="cannot be"):
        word_vocabulary(*table, 2, min_frequency=0)


def test_bytes_as_byt5():
    ids = {piece: len(BYTE_SPECIAL_TOKENS) + i for i, piece in enumerate(byte_vocabulary())}
    assert [ids[bytes([b])] for b in "é\n".encode()] == [0xC3 + 3, 0xA9 + 3, 13]
    assert len(ids) == 256
    assert np.unique(list(ids.values())).tolist() == list(range(3, 259))
