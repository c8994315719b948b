"""Window kernels against the automaton and the regex module, on text that crosses windows in every way."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.text import window_kernels as k
from shardpiece.text.dfa import DFA, compile_pattern
from shardpiece.text.documents import Documents
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.splitter import Splitter
from shardpiece.text.windows import window_kind
from tests.text import reference
from tests.text.reference import split_by

KINDS = {
    "gpt2": k.GPT2,
    "cl100k_base": k.CL100K,
    "llama3": k.CL100K,
    "qwen2": k.QWEN2,
    "o200k_base": k.O200K,
    "tekken": k.TEKKEN,
}
PIECES = (
    *"aZsS1'!/ \n\r\t\x1c",
    *("word", "Word", "WORD", "aAaA", "abcdefghijklmnopqrstuvwxyz", "12", "123", "1234", "12345678901"),
    *("'s", "'S", "'ll", "'LL", "'ve", "'rE", "'l", "'r", "don't", "x's's", "''", "'s'll", "i'mX", "I'LLx", "aB'tc"),
    *("  ", "    ", " \n", "\n ", "\n    ", " \t ", "\r\n", "\n\n", " \n \n ", "\x0b\x0c", " " * 30, "\n" * 20),
    *("!!", " !", "!a", "!\n", "!\n  \n", "!\n/", "//\n/\n", "/\n", ";\n// x", ",\r\n\t", "=-" * 20, "^" * 70, "(x)"),
    *("ж", "Ж", "жЖж", "ёлка", "ѐѠ", "Ā", "āĀ", "ſ", "ż", "Ž", "×", "÷", "ß", "À", "ÿ", "Þ", "þ", "dž", "É's", "ж'LL"),
    *("“", "”", "—", "–", "…", " “", "“a", "“”a", "—\n", "!—", "—!", "‐x", "‧x", "\u2028", "‰", "\u200b", "\u2003", "’re"),
    *("é", "É", "naïve", "ſ", "'ſ", "K", "中文", "½", "\u0301", "a\u0301", "\u00a0", "\u3000 ", "😀", "“", "’s"),
)  # fmt: skip


def with_and_without(name: str) -> tuple[Splitter, Splitter]:
    dfa = compile_pattern(PATTERNS[name])
    return Splitter(dfa), Splitter(dfa, windows=False)


def check(name: str, texts: list[str]) -> None:
    with_windows, without = with_and_without(name)
    expected = [reference.words(PATTERNS[name], text) for text in texts]
    assert split_by(without, texts) == expected
    assert split_by(with_windows, texts) == expected


def test_published_patterns_have_windows():
    assert {name: window_kind(compile_pattern(PATTERNS[name])) for name in KINDS} == KINDS


@pytest.mark.parametrize("name", KINDS)
def test_windows_need_the_published_reading_of_ascii(name):
    dfa = compile_pattern(PATTERNS[name])
    for character, other in (("_", "a"), ("x", "!"), ("7", "a"), ("\x0b", "!"), ("'", "!"), ("\x1d", " ")):
        classes = dfa.class_of.copy()
        classes[ord(character)] = classes[ord(other)]
        altered = DFA(classes, dfa.transitions)
        # A class that the pattern treats alike is no change.
        changed = classes[ord(character)] != dfa.class_of[ord(character)]
        assert (window_kind(altered) == k.NO_WINDOWS) == changed
    for character in "éÉЖж—”":
        classes = dfa.class_of.copy()
        classes[ord(character)] = classes[ord(" ")]
        assert window_kind(DFA(classes, dfa.transitions)) == k.NO_WINDOWS
    classes = dfa.class_of.copy()
    classes[0x2028:] = classes[ord("!")]
    assert window_kind(DFA(classes, dfa.transitions)) == KINDS[name]


def test_every_character_of_two_or_three_bytes_in_windows():
    """Between letters of either case, signs, digits and spaces."""
    for name in KINDS:
        with_windows, without = with_and_without(name)
        characters = [chr(c) for c in (*range(0x80, 0x800), *range(0x2000, 0x2100))]
        text = "".join(f"a{c}b {c}c A{c}B!{c}d{c}{c}e1{c}2'{c}s\n{c}\n" for c in characters)
        documents = Documents.from_strings([text, text[::-1]])
        assert np.array_equal(with_windows.split(documents)[0], without.split(documents)[0]), name


def test_other_patterns_have_no_windows():
    gpt2 = PATTERNS["gpt2"]
    for pattern in (r"\S+|\s+", r"\p{L}+", gpt2.replace(r"\p{N}+", r"\p{N}{1,3}"), gpt2.replace("|ll", "")):
        assert window_kind(compile_pattern(pattern)) == k.NO_WINDOWS


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=80, deadline=None, derandomize=True)
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), min_size=1, max_size=6))
def test_adversarial_texts_split_as_regex(name, texts):
    check(name, texts)


@pytest.mark.parametrize("name", KINDS)
def test_every_sequence_of_four_classes(name):
    characters = "aeAls1' \n\t!/é"
    check(name, ["".join(map("".join, itertools.product(characters, repeat=4)))])


@pytest.mark.parametrize("name", KINDS)
def test_many_random_texts(name):
    """Windows against the automaton alone, as arrays: far more of them."""
    with_windows, without = with_and_without(name)
    rng = random.Random(3)
    for _ in range(60):
        texts = []
        for _ in range(100):
            some = rng.sample(PIECES, rng.choice([1, 2, 3, 5, 8]))
            texts.append("".join(rng.choices(some, k=rng.randrange(60)))[: rng.choice([63, 64, 65, 130, 200])])
        documents = Documents.from_strings(texts)
        for a, b in zip(with_windows.split(documents), without.split(documents), strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("name", KINDS)
def test_documents_end_inside_windows(name):
    rng = random.Random(4)
    text = "".join(rng.choices([piece for piece in PIECES if len(piece) < 12], k=400))
    for size in (1, 2, 3, 31, 32, 33, 34, 62, 63, 64, 65, 66, 127, 128, 129, 500):
        check(name, [text[at : at + size] for at in range(0, len(text), size)])


@pytest.mark.parametrize("name", KINDS)
def test_long_runs_between_words(name):
    for unit in ("a", "A", "aA", " ", "\n", " \n", "1", "^", "'", "'s", "é", "aé", "\r\n", "a ", "!\n/", "中", "中a"):
        check(name, [f"It's{unit * 700}x 12 {unit * 90} end of it, and then a few words more, in ASCII letters. " * 2])


@pytest.mark.parametrize("name", KINDS)
def test_long_runs_of_letters_and_marks(name):
    """Runs that windows skip, of every length around theirs, before and behind all kinds of characters."""
    rng = random.Random(9)
    texts = []
    for length in (*range(20, 30), *range(50, 72), *range(120, 135), 500):
        for letters in ("a", "é", "éa", "жa", "a\u0301", "\u0301", "aÉ"):
            run = (letters * length)[: length - rng.randint(0, 1)]
            texts.append(f"{rng.choice(PIECES)}{run}{rng.choice(PIECES)}{rng.choice(PIECES)}")
            texts.append(f"{run}{rng.choice(PIECES)}{run}{rng.choice(PIECES)}" + "x" * 70)
    check(name, texts)
