"""Patterns of tokenizer.json: what the library matches with them, ours match."""

import random

import pytest

from shardpiece.errors import FormatError
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.text.steps import SplitStep
from shardpiece.tokenizer.formats.oniguruma import spelled
from shardpiece.tokenizer.formats.oniguruma_read import translated

PATTERNS = [
    r"\w+|[^\w\s]+", r"[\w-]+", r"[\W_]+", r"[^\W\d]+", r"[\w.]+(?=ab)", r"\b", r"\B", r"\ba", r"\d{1,3}(?=(?:\d{3})*\b)",
    r"a{1,3}+", r"a{2}?", r"a{,2}", r"a?+a", r"a++", r"(?>a+)a|b", r"x{", r"x{,}", r"a}", r"a]",
    r"x(?i)a|b", r"(?i:i)+", r"(?i:in|a)", r"(?i:[^a-k])+", r"(?i:[a-z])+", r"(?i:'s|'t)|[b-k]", r"(?-i:a)",
    r"^a", r"a$", "^", r"a\Z", r"\Aa", r"a\z", r"(?m:a.)", r"\N+", r"\O", r"\R", r"\h+",
    r"[]a]+", r"[^]a]+", r"[a||b]+", r"[a[bc]1]+", r"[[a]-c]", r"[+--]+", r"[a-]+", r"[\u4e00-\u9fa5]+", r"\x{61}+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+", r"\p{^L}+", r"\P{^L}+", r"\p{Alnum}+", r"\p{Punct}", r"(?<n>a)b", r"(?#c)a", r"a|", r"(?<=a)b",
]  # fmt: skip


def texts() -> list[str]:
    rng = random.Random(1)
    letters = "iIİıaaabbbcAB1239 \n\n.-_[]{},|~&+*<#/x²\u200dé一'sStTſKß\u0301\r\t"
    return ["".join(rng.choice(letters) for _ in range(rng.randrange(1, 14))) for _ in range(150)]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.filterwarnings("ignore::shardpiece.errors.ShardpieceWarning")
def test_patterns_match_as_in_the_library(pattern):
    tokenizers = pytest.importorskip("tokenizers")
    read = translated(pattern)
    assert translated(spelled(read)) == read  # what is written again is read alike
    for invert in (False, True):
        ours = PreTokenizer([SplitStep(read, "removed", invert)])
        peer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "removed", invert)
        for text in texts():
            assert ours.split_text(text) == [word for word, _ in peer.pre_tokenize_str(text) if word], repr(text)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        (r"(a)\1", r"\\1"), (r"\X", r"\\X"), ("[a&&b]", "class of classes"), ("[[:alpha:]]", "class of classes"),
        ("[a[^b]]", "class of classes"), (r"\p{Lower}", "property"), (r"\p{hf_word}", "property"), ("(?x: a)", "option"),
        ("a**", "repeat of a repeat"), ("a{3,2}", "interval"), ("(?i:é)", "'é' without regard to case"), ("(?i:st)", "ligature"),
        (r"(?i:[i\s])", "class with an i"), ("(?~ab)", "group"), ("(a", "without end"), ("a)", "without"), ("[a", "without end"),
        (r"\xe9", "escape"), (r"[a-\d]", "range"), ("+a", "quantifier"), (r"\Ga", "escape"), (r"(?i:\p{Lu})", "property"),
    ],
)  # fmt: skip
def test_what_has_no_equal_is_named(pattern, what):
    with pytest.raises(FormatError, match=what):
        translated(pattern)
