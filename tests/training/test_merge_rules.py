"""Rules about the text of tokens: against a plain-Python reading of them, and in the merge loop."""

import io

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError
from shardpiece.text import unicode_sets
from shardpiece.training.merge_loop import learn_merges
from shardpiece.training.merge_rules import WHITESPACE_PLACES, MergeRules
from tests.training import reference
from tests.training.test_merge_loop import flat, pairs, spell, symbols_of

SCRIPTS = unicode_sets.scripts()
COMMON = next(i for i, members in enumerate(SCRIPTS) if members[ord("!")])
INHERITED = next(i for i, members in enumerate(SCRIPTS) if members[0x300])


def script(character):
    return next((i for i, members in enumerate(SCRIPTS) if members[ord(character)]), COMMON)


def plain_digit(character):
    return character in "0123456789０１２３４５６７８９"


def allowed(text: str, rules: MergeRules) -> bool:
    """The rules read off their documentation; scripts and white space as SentencePiece's IsValidSentencePiece."""
    previous = None
    for i, c in enumerate(text):
        front, end = i == 0, i == len(text) - 1
        if c == "▁":
            wrong = {
                "any": False,
                "front": not front,
                "front_or_inside": not front and end,
                "end": not end,
                "end_or_inside": front and not end,
            }[rules.whitespace]
            if wrong and not (rules.whitespace_only and set(text) == {"▁"}):
                return False
            continue
        if rules.digits_alone and plain_digit(c) and len(text) > 1:
            return False
        if rules.separate_scripts and c != " ":
            s = script(c)
            if s == INHERITED:
                s = previous
            if rules.digits_join_any_script and plain_digit(c):
                s = None
            if s is not None and previous is not None and s != previous:
                return False
            previous = s
    if rules.separate_letters_and_digits and regex.search(r"[\p{L}\p{M}]", text) and regex.search(r"\p{N}", text):
        return False
    return rules.max_digits is None or len(regex.findall(r"\p{Nd}", text)) <= rules.max_digits


rules = st.builds(
    MergeRules,
    separate_letters_and_digits=st.booleans(),
    separate_scripts=st.booleans(),
    digits_join_any_script=st.booleans(),
    max_digits=st.sampled_from([None, None, 1, 2]),
    digits_alone=st.booleans(),
    whitespace=st.sampled_from(WHITESPACE_PLACES),
    whitespace_only=st.booleans(),
)
# Latin, Greek, Han with its kana, a mark, signs, digits of three kinds, a number that is none, the two spaces, no script.
CHARACTERS = "aβ漢かーé\u0301!-1２٣½▁ \U000e0fff"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(CHARACTERS), min_size=2, max_size=8), st.integers(1, 9)),
        min_size=1,
        max_size=15,
    ),
    rules,
    st.sampled_from([2, 64]),
)
def test_equals_a_naive_recount(table, rules, divisor):
    table, alphabet = symbols_of(table)
    expected = reference.learn_merges(table, alphabet, 30, allowed=lambda text: allowed(text.decode(), rules))
    got = learn_merges(*flat(table, np.int32), alphabet, 30, rules=rules, floor_divisor=divisor)
    assert pairs(got) == expected


def test_incomplete_characters_are_ignored():
    rules = MergeRules(separate_scripts=True, separate_letters_and_digits=True)
    alphabet = [bytes([b]) for b in range(256)]
    for text, merge in (("1ß", (b"1", b"\xc3")), ("ß1", (b"\x9f", b"1"))):
        # Half of ß is no letter and may join the digit; the other half then makes it one.
        result = learn_merges(*flat([(text.encode(), 5)], np.uint8), alphabet, 5, rules=rules)
        assert spell(pairs(result), alphabet) == [(merge, 5)]


def test_markers_are_not_text():
    rules = MergeRules(separate_scripts=True, max_digits=1, end_marker=b"</w>")
    table, alphabet = symbols_of([("ж", 5), ("1", 3)], lambda characters: [*characters, "</w>"])
    merges = spell(pairs(learn_merges(*flat(table, np.int32), alphabet, 5, rules=rules)), alphabet)
    assert [a + b for (a, b), _ in merges] == ["ж</w>".encode(), b"1</w>"]
    table, alphabet = symbols_of([("xжж", 5)], lambda characters: [characters[0], *("##" + c for c in characters[1:])])
    rules = MergeRules(separate_scripts=True)
    merges = spell(pairs(learn_merges(*flat(table, np.int32), alphabet, 5, rules=rules, prefix=b"##")), alphabet, b"##")
    assert [a + b for (a, b), _ in merges] == ["##ж##ж".encode()]


@pytest.mark.parametrize("bad", [{"max_digits": 0}, {"whitespace": "nowhere"}])
def test_settings_out_of_range(bad):
    with pytest.raises(ConfigError):
        MergeRules(**bad)


WORDS = {
    "▁the": 90, "▁they": 41, "▁then": 37, "▁2nd": 30, "▁22": 28, "▁2024": 25, "▁a-b": 20, "▁кот": 19, "▁кокот": 18,
    "▁xкот": 17, "▁漢字かな": 15, "▁カタカナー": 14, "▁e\u0301te\u0301": 12, "▁don't": 11, "▁aaaaaaaa": 9, "▁!!!!": 7,
    "▁αβγ2α": 6, "▁１２": 5, "▁abcabcabcabcabcabcabc": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({}, MergeRules(separate_scripts=True, whitespace="front")),
        ({"split_by_unicode_script": False}, MergeRules(whitespace="front")),
        (
            {"split_by_number": False},
            MergeRules(separate_scripts=True, digits_join_any_script=True, whitespace="front"),
        ),
        ({"split_digits": True}, MergeRules(separate_scripts=True, digits_alone=True, whitespace="front")),
    ],
)
def test_equals_sentencepiece(options, rules):
    sentencepiece = pytest.importorskip("sentencepiece")
    table, alphabet = symbols_of(sorted(WORDS.items()))
    merges = learn_merges(
        *flat(table, np.int32), alphabet, 60, tie_break="sentencepiece", rules=rules, max_token_length=16
    )
    ours = [(a + b).decode() for (a, b), _ in spell(pairs(merges), alphabet)]
    lines = [f"{word[1:]}\t{count}" for word, count in sorted(WORDS.items())]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), input_format="tsv", model_writer=model, model_type="bpe",
        vocab_size=len(alphabet) + 3 + len(ours), character_coverage=1.0, normalization_rule_name="identity",
        hard_vocab_limit=False, minloglevel=2, **options,
    )  # fmt: skip
    peer = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    theirs = [peer.id_to_piece(i) for i in range(3, peer.vocab_size())][: len(ours)]
    assert theirs == ours
