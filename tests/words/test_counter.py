"""The bounded hash count against collections.Counter."""

from collections import Counter

import numpy as np
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.text.documents import Documents, Words
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.words.counter import WordCounter
from shardpiece.words.table import WordTable
from tests.conftest import TEXTS
from tests.text.test_splitter import before_a_forbidden_page


def collect(batches) -> Counter:
    counts = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            counts[row["group"], row["word"]] += row["count"]
    return counts


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(["en", "de", ""]), st.text("ab ü1\n", max_size=40)), max_size=12),
    st.sampled_from([1, 4096, 1 << 20]),
)
def test_equals_a_plain_counter(rows, memory):
    pretokenizer = PreTokenizer("gpt2")
    counter = WordCounter(memory)
    batches = []
    for part in (rows[::2], rows[1::2]):
        documents = Documents.from_strings([text for _, text in part])
        batches += counter.add(pretokenizer.split(documents), [group for group, _ in part])
    batches += counter.drain()
    expected = Counter((group, word.encode()) for group, text in rows for word in regex.findall(PATTERNS["gpt2"], text))
    assert collect(batches) == expected


def test_many_words_spill_within_the_bound():
    texts = [" ".join(f"w{i}x{j}" for j in range(500)) for i in range(100)]
    documents = Documents.from_strings(texts)
    pretokenizer = PreTokenizer(r"\S+|\s+")
    small, large = WordCounter(memory=64 << 10), WordCounter()
    words = pretokenizer.split(documents)
    spilled = list(small.add(words))
    assert spilled
    assert list(large.add(words)) == []
    assert collect([*spilled, *small.drain()]) == collect(large.drain())
    assert list(large.drain()) == []


def test_long_words_are_left_out_and_reported():
    documents = Documents.from_strings(["short " + "x" * 1000 + " tail", "y" * 1001])
    counter = WordCounter(max_word_bytes=1000)
    assert list(counter.add(PreTokenizer("gpt2").split(documents))) == []
    assert collect(counter.drain()) == {("", b"short"): 1, ("", b" tail"): 1}
    assert (counter.long_words, counter.long_word_bytes) == (2, 1001 + 1001)


def test_a_word_of_a_megabyte():
    documents = Documents.from_strings(["=" * 1_000_000])
    counter = WordCounter(memory=1 << 20, max_word_bytes=2_000_000)
    assert list(counter.add(PreTokenizer("gpt2").split(documents))) == []
    assert collect(counter.drain()) == {("", b"=" * 1_000_000): 1}


def test_word_table_from_texts():
    texts = [text or "" for text in TEXTS]
    table = WordTable.from_texts(texts, "cl100k_base")
    expected = Counter(w.encode() for text in texts for w in PreTokenizer("cl100k_base").split_text(text))
    assert table.to_counter() == expected
    data, starts, counts = table.arrays()
    words = [data[starts[i] : starts[i + 1]].tobytes() for i in range(len(counts))]
    assert words == sorted(expected)
    assert [expected[w] for w in words] == counts.tolist()


def test_fingerprint_does_not_depend_on_order():
    a = WordTable.from_counts({"low": 5, "new": 6}, "gpt2")
    b = WordTable.from_counts({"new": 6, "low": 5}, "gpt2")
    assert a.fingerprint == b.fingerprint
    assert a.fingerprint != WordTable.from_counts({"new": 6, "low": 4}, "gpt2").fingerprint
    assert a.fingerprint != WordTable.from_counts({"new": 6, "low": 5}, "llama3").fingerprint


def as_words(documents: list[list[bytes]]) -> Words:
    raw = b"".join(word for document in documents for word in document)
    ends = np.cumsum([len(word) for document in documents for word in document], dtype=np.int64)
    document_ends = np.cumsum([len(document) for document in documents], dtype=np.int64)
    return Words(np.frombuffer(raw, np.uint8), 0, ends, document_ends)


# Lengths around those of the parts of a key, with common beginnings and ends, and zero bytes.
similar = st.builds(
    lambda n, at, byte: (b"\0" * n)[:at] + byte + (b"\0" * n)[at + 1 :],
    st.sampled_from([1, 2, 7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 100]),
    st.integers(0, 40),
    st.sampled_from([b"a", b"\0", b"\xff"]),
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(["en", "de", ""]), st.lists(similar, max_size=30)), max_size=8),
    st.sampled_from([1, 1 << 20]),
)
def test_similar_words_are_kept_apart(rows, memory):
    counter = WordCounter(memory, max_word_bytes=64)
    batches = [*counter.add(as_words([words for _, words in rows]), [group for group, _ in rows]), *counter.drain()]
    expected = Counter((group, word) for group, words in rows for word in words if len(word) <= 64)
    assert collect(batches) == expected
    assert counter.long_words == sum(len(word) > 64 for _, words in rows for word in words)


def test_the_table_grows_without_spilling_and_within_the_bound():
    memory = 32 << 20
    documents = [[f"{i * 7919 % 150_000:x}".encode() * (1 + i % 5) for i in range(d, 200_000, 50)] for d in range(50)]
    expected = Counter(("", word) for document in documents for word in document)
    counter = WordCounter(memory)
    assert list(counter.add(as_words(documents))) == []
    # While the table of entries grows, a quarter of it is there too.
    assert counter._entries.nbytes * 5 // 4 + counter._arena.nbytes < memory
    first = list(counter.drain())
    assert collect(first) == expected
    again = WordCounter(memory)
    list(again.add(as_words(documents)))
    assert list(again.drain()) == first
    assert max(batch.num_rows for batch in first) <= 1 << 16


def test_both_parts_of_the_memory_spill():
    for n in (3, 300):
        documents = [[f"{i:0{n}}".encode() for i in range(30_000)] * 2]
        counter = WordCounter(1 << 20)
        spilled = list(counter.add(as_words(documents)))
        assert spilled
        assert collect([*spilled, *counter.drain()]) == Counter(("", word) for word in documents[0])


def test_batches_on_their_way_out_are_small(monkeypatch):
    monkeypatch.setattr("shardpiece.words.counter._OUT_BYTES", 1000)
    documents = [[b"%d" % i * 20 for i in range(200)] + [b"x" * 5000]]
    counter = WordCounter()
    assert list(counter.add(as_words(documents))) == []
    batches = list(counter.drain())
    assert collect(batches) == Counter(("", word) for word in documents[0])
    assert all(batch.num_rows == 1 or sum(map(len, batch["word"].to_pylist())) <= 1000 for batch in batches)


def test_no_word_is_read_behind_the_data():
    """Were it not so, this process would end here."""
    for n in range(1, 40):
        words = [b"w" * n, b"v" * n]
        data, mapping = before_a_forbidden_page(b"".join(words))
        counter = WordCounter(1 << 20)
        list(counter.add(Words(data, 0, np.array([n, 2 * n]), np.array([2]))))
        assert collect(counter.drain()) == {("", word): 1 for word in words}
        del data
        del mapping
