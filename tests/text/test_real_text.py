"""All of the shared corpora: words and their counts as the reference implementation's, for every named pre-tokenizer."""

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import regex

import shardpiece
from shardpiece.text import patterns
from shardpiece.text.pretokenizers import PRETOKENIZERS
from tests.text.reference import split
from tests.text.test_pretokenizers import EXTREMES, PUBLISHED, by_patterns, hugging_face

MAX_WORD_BYTES = 32_768  # longer ones are left out of tables

NAMES = [name for name in PRETOKENIZERS if name not in (*EXTREMES, "r50k_base", "p50k_base", "gpt_neox")]


@pytest.fixture(scope="module")
def corpora(shared) -> list[str]:
    paths = sorted(shared.glob("corpus/*/*.parquet"))
    return pa.concat_tables([pq.read_table(path, columns=["text"]) for path in paths])["text"].to_pylist()


def check(name: str, texts: list[str]) -> None:
    """The patterns of tiktoken's family by the regex module, the rest by Hugging Face's library."""
    if name in patterns.PATTERNS or name == "deepseek_v3":
        compiled = [regex.compile(pattern) for pattern in PUBLISHED[name]]

        def peer(text: str) -> list[str]:
            return by_patterns(compiled, text)
    else:
        peer = hugging_face(name)
    counts: Counter = Counter()
    pretokenizer = shardpiece.PreTokenizer(name)
    for first in range(0, len(texts), 2000):
        batch = texts[first : first + 2000]
        for text, words in zip(batch, split(pretokenizer, batch), strict=True):
            expected = peer(text)
            assert words == expected, text[:200]
            counts.update(expected)
    table = shardpiece.WordTable.from_texts(texts, pretokenizer)
    expected = {word.encode(): count for word, count in counts.items()}
    assert table.to_counter() == {word: n for word, n in expected.items() if len(word) <= MAX_WORD_BYTES}


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_is_split_and_counted_as_by_the_reference(corpora, name):
    check(name, corpora[7::200])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_everything_is_split_and_counted_as_by_the_reference(corpora, name):
    check(name, corpora)
