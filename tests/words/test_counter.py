"""The bounded hash count against collections.Counter."""

from collections import Counter

import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.text.documents import Documents
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.words.counter import WordCounter
from shardpiece.words.table import WordTable
from tests.conftest import TEXTS


def collect(batches) -> Counter:
    counts = Counter()
    for batch in batches:
        for row in batch.to_pylist():
            counts[row["group"], row["word"]] += row["count"]
    return counts


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["en", "de", ""]), st.text("ab ü1\n", max_size=40)), max_size=12),
    st.sampled_from([1, 4096, 1 << 20]),
)
def test_equals_a_plain_counter(rows, memory):
    pretokenizer = PreTokenizer.named("gpt2")
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
    pretokenizer = PreTokenizer.named(r"\S+|\s+")
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
    assert list(counter.add(PreTokenizer.named("gpt2").split(documents))) == []
    assert collect(counter.drain()) == {("", b"short"): 1, ("", b" tail"): 1}
    assert (counter.long_words, counter.long_word_bytes) == (2, 1001 + 1001)


def test_a_word_of_a_megabyte():
    documents = Documents.from_strings(["=" * 1_000_000])
    counter = WordCounter(memory=1 << 20, max_word_bytes=2_000_000)
    assert list(counter.add(PreTokenizer.named("gpt2").split(documents))) == []
    assert collect(counter.drain()) == {("", b"=" * 1_000_000): 1}


def test_word_table_from_texts():
    texts = [text or "" for text in TEXTS]
    table = WordTable.from_texts(texts, "cl100k_base")
    expected = Counter(w.encode() for text in texts for w in PreTokenizer.named("cl100k_base").split_text(text))
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
