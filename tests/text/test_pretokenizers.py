"""Splits against finditer, the published patterns, and patterns nobody should write."""

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, DocumentError, ShardpieceWarning
from shardpiece.text import pretokenizers
from shardpiece.text.documents import Documents
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.pretokenizers import PreTokenizer
from tests.conftest import TEXTS

# The same patterns as their publishers spell them.
PUBLISHED = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++\Z|\s+(?!\S)|\s",
    "cl100k_base": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\Z|"
    r"\s*[\r\n]|\s+(?!\S)|\s",
    "o200k_base": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|"
    r"'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|"
    r"'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+",
}

adversarial = st.text(
    st.one_of(
        st.sampled_from(" \t\n\r'sSdDmMtTlLvVeErRſK0１½aéßǅʰ中ا\u0301\u200d\u00a0\u2028😀/=^_-"),
        st.characters(codec="utf-8"),
    ),
    max_size=60,
)


@pytest.mark.parametrize("name", PATTERNS)
@settings(max_examples=300, deadline=None)
@given(text=adversarial)
def test_named_patterns_split_as_published(name, text):
    assert PreTokenizer.named(name).split_text(text) == regex.findall(PUBLISHED[name], text)


@pytest.mark.parametrize("name", PATTERNS)
def test_nothing_is_lost(name):
    pretokenizer = PreTokenizer.named(name)
    texts = [text or "" for text in TEXTS]
    documents = Documents.from_strings(texts)
    words = pretokenizer.split(documents)
    assert words.ends[-1] == documents.size
    assert list(words.document_ends) == [
        sum(len(pretokenizer.split_text(t)) for t in texts[: d + 1]) for d in range(len(texts))
    ]
    for text in texts:
        assert "".join(pretokenizer.split_text(text)) == text


@pytest.mark.parametrize(
    ("pattern", "text", "words"),
    [
        (r"\d+", "ab12cd3", ["ab", "12", "cd", "3"]),  # text between matches is a word
        (r"x*", "axxb", ["a", "xx", "b"]),  # empty matches split nothing by themselves
        (r"(?=b)", "aabb", ["aa", "b", "b"]),  # but a look-ahead's position is a border
        (r"(a)(b)?", "abaab", ["ab", "a", "ab"]),  # groups do not matter
        (r"é|日", "xé日y", ["x", "é", "日", "y"]),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::shardpiece.errors.ShardpieceWarning")
def test_gaps_empty_matches_and_groups(pattern, text, words):
    assert PreTokenizer.named(pattern).split_text(text) == words


def test_a_name_is_checked_before_a_job_starts():
    with pytest.raises(ConfigError, match="did you mean 'cl100k_base'"):
        PreTokenizer.named("cl100k")
    with pytest.raises(ConfigError, match="not a known name"):
        PreTokenizer.named("(unclosed")


def test_a_pattern_that_would_hang_is_stopped(monkeypatch):
    monkeypatch.setattr(pretokenizers, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(pretokenizers, "TIMEOUT_SECONDS_PER_MB", 0.0)
    # Look-behind is left to regex, which backtracks.
    with pytest.warns(ShardpieceWarning, match="look-behind|group"):
        catastrophic = PreTokenizer.named(r"(?<!x)(?:a+a+)+b")
    with pytest.raises(DocumentError, match="ran for more than") as caught:
        catastrophic.split(Documents.from_strings(["fine", "a" * 5000]))
    assert caught.value.index == 1


def test_fingerprint_is_of_the_pattern_alone():
    named = PreTokenizer.named("gpt2")
    assert PreTokenizer.named(PATTERNS["gpt2"]).fingerprint == named.fingerprint
    assert PreTokenizer.named("llama3").fingerprint != named.fingerprint
    assert PreTokenizer.from_spec(named.spec).fingerprint == named.fingerprint
