"""Special tokens in training text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, DocumentError
from shardpiece.text.documents import Documents
from shardpiece.text.special import SpecialTokenCutter


@settings(deadline=None)  # the first call compiles
@given(
    st.lists(st.text("<>|ab日", max_size=20), max_size=6),
    st.lists(st.sampled_from(["<a>", "<|", "|", "<a>b", "日", "aa"]), unique=True, max_size=4),
)
def test_pieces_are_what_stands_between_tokens(texts, tokens):
    found = SpecialTokenCutter(tokens).cut(Documents.from_strings(texts))
    cut: list[list[str]] = [[] for _ in texts]
    between: list[list[str]] = [[] for _ in texts]
    for p, d in enumerate(found.owners.tolist()):
        cut[d].append(found.pieces.text(p))
        if found.tokens[p] >= 0:
            between[d].append(tokens[found.tokens[p]])
    if tokens:
        pattern = re.compile(
            "|".join(re.escape(t) for t in sorted(tokens, key=lambda t: (-len(t.encode()), t.encode())))
        )
        expected = [pattern.split(text) for text in texts]
        assert between == [pattern.findall(text) for text in texts]
    else:
        expected = [[text] for text in texts]
    assert cut == expected
    assert found.removed == sum(len(parts) - 1 for parts in expected)


def test_a_token_across_two_documents_is_none():
    cut = SpecialTokenCutter(["<s>"]).cut(Documents.from_strings(["a<", "s>b<s>c", "<s", ">"]))
    assert [cut.pieces.text(p) for p in range(len(cut.pieces))] == ["a<", "s>b", "c", "<s", ">"]
    assert cut.owners.tolist() == [0, 1, 1, 2, 3]
    assert cut.at_start.tolist() == [True, True, False, True, True]
    assert cut.tokens.tolist() == [-1, 0, -1, -1, -1]
    assert cut.removed == 1


def test_the_first_document_with_a_token_is_refused():
    cutter = SpecialTokenCutter(["<s>", "</s>"])
    cutter.refuse(Documents.from_strings(["fine", "", "s>"]))
    with pytest.raises(
        DocumentError, match=r"special token '</s>' at byte 3 \(special_tokens_in_text: error"
    ) as caught:
        cutter.refuse(Documents.from_strings(["fine", "é </s> <s>", "<s>"]))
    assert caught.value.index == 1


def test_many_tokens_in_one_batch():
    cut = SpecialTokenCutter(["ab"]).cut(Documents.from_strings(["ab" * 5000, "xab"]))
    assert cut.removed == 5001
    assert cut.pieces.size == 1


def test_tokens_have_a_longest():
    SpecialTokenCutter(["a" * 512])
    with pytest.raises(ConfigError, match="more than 512 bytes"):
        SpecialTokenCutter(["a" * 513])
