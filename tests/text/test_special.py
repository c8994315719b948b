"""Special tokens in training text."""

import re

from hypothesis import given
from hypothesis import strategies as st

from shardpiece.text.documents import Documents
from shardpiece.text.special import SpecialTokenCutter


@given(
    st.lists(st.text("<>|ab日", max_size=20), max_size=6),
    st.lists(st.sampled_from(["<a>", "<|", "|", "<a>b", "日", "aa"]), unique=True, max_size=4),
)
def test_pieces_are_what_stands_between_tokens(texts, tokens):
    pieces, owners, removed = SpecialTokenCutter(tokens).cut(Documents.from_strings(texts))
    cut: list[list[str]] = [[] for _ in texts]
    for p, d in enumerate(owners.tolist()):
        cut[d].append(pieces.text(p))
    if tokens:
        pattern = re.compile(
            "|".join(re.escape(t) for t in sorted(tokens, key=lambda t: (-len(t.encode()), t.encode())))
        )
        expected = [pattern.split(text) for text in texts]
    else:
        expected = [[text] for text in texts]
    assert [[p for p in parts if p] for parts in cut] == [[p for p in parts if p] for parts in expected]
    assert removed == sum(len(parts) - 1 for parts in expected)


def test_a_token_across_two_documents_is_none():
    pieces, owners, removed = SpecialTokenCutter(["<s>"]).cut(Documents.from_strings(["a<", "s>b<s>c", "<s", ">"]))
    assert [pieces.text(p) for p in range(len(pieces))] == ["a<", "s>b", "c", "<s", ">"]
    assert owners.tolist() == [0, 1, 1, 2, 3]
    assert removed == 1
