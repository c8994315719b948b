"""Words as base symbols against plain Python, and the choice of characters at its boundaries."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardpiece
from shardpiece.errors import ConfigError, TrainingError
from shardpiece.training.alphabet import character_symbols, choose_characters, count_characters
from tests.conftest import TEXTS


def arrays(words):
    """[(bytes, count)] as a word table gives them."""
    data = np.frombuffer(b"".join(word for word, _ in words) + b"\0", np.uint8)[:-1]
    starts = np.cumsum([0, *(len(word) for word, _ in words)]).astype(np.int64)
    return data, starts, np.array([count for _, count in words], np.int64)


def spelled(table, kept, prefix, suffix, separate):
    """The base symbols of each word as texts, None for characters that are not kept."""
    words = []
    for word, _ in table:
        symbols = []
        for i, c in enumerate(word):
            mark = suffix if i == len(word) - 1 and not separate else ""
            symbols.append((prefix if i else "") + c + mark if c in kept else None)
        words.append(symbols + [suffix] * separate)
    return words


def ours(table, **settings):
    result = character_symbols(*arrays([(word.encode(), n) for word, n in table]), **settings)
    names = [None if s < 0 else result.alphabet[s].decode() for s in result.symbols.tolist()]
    starts = result.starts.tolist()
    return result, [names[a:b] for a, b in pairwise(starts)]


tables = st.lists(
    st.tuples(st.text(st.sampled_from("ab#é日😀\u0301"), min_size=1, max_size=8), st.integers(1, 2**40)),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(
    tables,
    st.sampled_from([0.1, 0.5, 0.9, 0.9995, 1.0]),
    st.sampled_from([None, 1, 2, 4]),
    st.sampled_from(["", "a", "zé"]),
    st.sampled_from(["", "##"]),
    st.sampled_from([("", False), ("</w>", False), ("</w>", True)]),
)
def test_equals_plain_python(table, coverage, limit, initial, prefix, suffix):
    suffix, separate = suffix
    result, words = ours(
        table, coverage=coverage, limit=limit, initial=initial, prefix=prefix.encode(), suffix=suffix.encode(),
        suffix_separate=separate,
    )  # fmt: skip
    counts = Counter()
    for word, n in table:
        for c in word:
            counts[c] += n
    total = sum(counts.values())
    kept, covered = list(initial), 0
    for c, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= Fraction(str(coverage)) * total:
            break
        covered += n
        if c not in kept and (limit is None or len(kept) < limit):
            kept.append(c)
    assert words == spelled(table, kept, prefix, suffix, separate)
    assert result.alphabet[: result.characters] == [c.encode() for c in sorted(kept)]
    marked = {s for word in words for s in word if s and s not in kept}
    bare = {s: s.removeprefix(prefix).removesuffix("" if separate else suffix) for s in marked}
    assert [s.decode() for s in result.alphabet[result.characters :]] == sorted(
        marked | {suffix} if separate else marked, key=lambda s: (s == suffix, bare.get(s, ""), s)
    )
    assert result.total == total
    assert result.dropped_characters == len(set(counts) - set(kept))
    assert result.dropped_occurrences == sum(n for c, n in counts.items() if c not in kept)
    frequencies = Counter()
    for word, (_, n) in zip(words, table, strict=True):
        for s in word:
            frequencies[s] += n
    assert result.frequencies.tolist() == [frequencies[s.decode()] for s in result.alphabet]
    assert (result.symbols.dtype, result.starts.dtype, result.counts.dtype) == (np.int32, np.int64, np.int64)


def test_alphabet_order_is_that_of_hugging_face():
    """Its ids: the characters by code point, then ## forms (their order is that of its hash; ours is by code point)."""
    tokenizers = pytest.importorskip("tokenizers")
    table = [("hugs", 3), ("ugh", 2), ("é", 1)]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1, continuing_subword_prefix="##", show_progress=False)
    peer = tokenizers.Tokenizer(tokenizers.models.BPE())
    peer.train_from_iterator([word for word, n in table for _ in range(n)], trainer)
    vocab = sorted(peer.get_vocab(), key=peer.token_to_id)
    result, words = ours(table, prefix=b"##")
    assert [s.decode() for s in result.alphabet[: result.characters]] == vocab[: result.characters]
    assert result.characters == 5
    assert sorted(vocab) == sorted(s.decode() for s in result.alphabet)
    assert [s.decode() for s in result.alphabet[5:]] == ["##g", "##h", "##s", "##u"]
    assert words[0] == ["h", "##u", "##g", "##s"]


def test_end_of_word_marks():
    table = [("low", 5), ("o", 1)]
    assert ours(table, suffix=b"</w>")[1] == [["l", "o", "w</w>"], ["o</w>"]]
    result, words = ours(table, suffix=b"</w>", suffix_separate=True)
    assert words == [["l", "o", "w", "</w>"], ["o", "</w>"]]
    assert result.alphabet == [b"l", b"o", b"w", b"</w>"]
    assert ours(table, suffix=b"</w>", prefix=b"##")[0].alphabet == [
        b"l", b"o", b"w", b"##o", b"o</w>", b"##w</w>",
    ]  # fmt: skip


def test_real_text_of_every_length():
    words = shardpiece.WordTable.from_texts([text or "" for text in TEXTS], "gpt2")
    table = [(word.decode(), n) for word, n in words.to_counter().items()]
    result = character_symbols(*words.arrays())
    spelled_words = {
        b"".join(result.alphabet[s] for s in result.symbols[a:b])
        for a, b in zip(result.starts[:-1], result.starts[1:], strict=True)
    }
    assert spelled_words == {word.encode() for word, _ in table}
    counts = Counter()
    for word, n in table:
        for c in word:
            counts[ord(c)] += n
    code_points, occurrences = count_characters(*words.arrays())
    assert dict(zip(code_points.tolist(), occurrences.tolist(), strict=True)) == counts


def test_counts_beyond_32_bits():
    table = [("ab", 2**31 + 1), ("b", 2**32 + 1), ("c", 1)]
    result, _ = ours(table, limit=1)
    assert result.alphabet == [b"b"]
    assert result.frequencies.tolist() == [2**31 + 2**32 + 2]
    assert (result.dropped_characters, result.dropped_occurrences) == (2, 2**31 + 2)
    with pytest.raises(TrainingError, match="2\\^62"):
        ours([("ab", 2**62)])


def test_coverage_is_compared_exactly_and_ties_go_to_the_smaller_code_point():
    code_points, occurrences = np.arange(97, 101), np.array([10**17, 10**17, 1, 1])

    def kept(coverage):
        return "".join(map(chr, choose_characters(code_points, occurrences, coverage=coverage)))

    assert kept(0.5) == "a" + "b"  # half of all is one more than a's
    assert kept(1.0) == "abcd"
    assert kept(1e-9) == "a"
    assert choose_characters(code_points, np.array([5, 5, 5, 5]), coverage=0.5) == [97, 98]
    assert choose_characters(code_points, np.array([5, 5, 5, 6]), limit=2) == [100, 97]
    assert choose_characters(code_points, np.array([5, 5, 5, 6]), limit=2, initial="xyz") == [120, 121, 122]


@pytest.mark.parametrize(
    "word",
    [b"\xff", b"\x80", b"\xc3", b"a\xe2\x82", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
     b"\xf0\x8f\xbf\xbf", b"\xc3a"],
)  # fmt: skip
def test_words_that_are_no_text_are_refused(word):
    with pytest.raises(ConfigError, match="needs words that are text"):
        character_symbols(*arrays([(b"ok", 1), (word, 1)]))
    with pytest.raises(ConfigError, match="needs words that are text"):
        count_characters(*arrays([(word, 1)]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coverage": 0}, "coverage"),
        ({"coverage": 1.1}, "coverage"),
        ({"limit": 0}, "at least 1"),
        ({"initial": ["ab"]}, "single characters"),
        ({"initial": ["\ud800"]}, "single characters"),
        ({"prefix": b"\xff"}, "no text"),
        ({"suffix_separate": True}, "needs a spelling"),
        ({"suffix": b"b", "suffix_separate": True}, "also occurs"),
        ({"prefix": b"b", "suffix": b"b"}, "two base symbols"),
        ({"prefix": b"ba", "suffix": b"ab"}, "two base symbols"),
    ],
)
def test_settings_that_cannot_work(settings, message):
    with pytest.raises(ConfigError, match=message):
        ours([("ab", 1), ("ba", 1), ("b", 1), ("abbb", 1)], **settings)


def test_the_empty_table():
    result, words = ours([])
    assert (words, result.alphabet, result.total) == ([], [], 0)
    assert ours([], initial="ba")[0].alphabet == [b"a", b"b"]
