"""Normalizing and splitting in one pass, against the two steps one after the other."""

import random

import numpy as np
import pyarrow as pa
import pytest

from shardpiece.text import classed_kernels as k
from shardpiece.text.documents import Documents, Words
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.text.steps import SplitStep, whole_documents
from tests.conftest import TEXTS

BERT = {"type": "bert", "lowercase": False}
ENGINES = {
    "uncased": ("bert", "bert"),
    "cased": ("bert", BERT),
    "cased, accents stripped": ("bert", {**BERT, "strip_accents": True}),
    "not cleaned": ("bert", {"type": "bert", "clean_text": False, "handle_chinese_chars": False}),
    "no normalizer": ("bert", None),
    "signs": ("whitespace", "lowercase"),
    "signs, uncased": ("whitespace", "bert"),
    "white space": ("whitespace_split", "nmt"),
    "white space as matches": ({"type": "split", "pattern": r"\s+", "behavior": "removed"}, "strip_accents"),
    "one white space": ({"type": "split", "pattern": r"\s", "behavior": "removed"}, None),
    "letters": ({"type": "split", "pattern": r"\p{L}+|\p{N}", "behavior": "removed", "invert": True}, None),
}
WINDOWS = {
    "uncased": k.WINDOW_SINGLE, "cased": k.WINDOW_SINGLE, "cased, accents stripped": k.WINDOW_SINGLE,
    "not cleaned": k.WINDOW_SINGLE, "no normalizer": k.WINDOW_SINGLE, "signs": k.WINDOW_RUNS,
    "signs, uncased": k.WINDOW_RUNS, "white space": k.WINDOW_JOINED, "white space as matches": k.WINDOW_JOINED,
    "one white space": k.WINDOW_JOINED, "letters": k.NO_WINDOW,
}  # fmt: skip


def in_steps(engine: TextEngine, documents: Documents) -> Words:
    """The normalizer, then the automaton, then the removal of what it does not match."""
    [step] = engine.pretokenizer.steps
    automaton = SplitStep.from_spec(step.spec)
    automaton.__dict__["_classed"] = None
    normalized = documents if engine.normalizer is None else engine.normalizer.normalize(documents)
    return automaton.apply(whole_documents(normalized))


def equal(words: Words, expected: Words) -> bool:
    return (
        np.array_equal(words.document_ends, expected.document_ends)
        and np.array_equal(words.ends - words.start, expected.ends - expected.start)
        and np.array_equal(words.data[: words.size], expected.data[: expected.size])
    )


def generated(seed: int, n: int) -> list[str]:
    """Texts of ASCII and others in runs of all lengths, so that windows begin and end everywhere."""
    rng = random.Random(seed)
    kinds = ["abcXYZ019", " \t\n\r", "!-_.[`{~", "\0\x0b\x1f\x7f", "éÀßŒıİ", "яЖ", "日本語ー。", "한글", "e\u0301\u0327", "\u00a0\u3000\u200b",
             "≠ﬁ豈\u1b44\U0001f600𠀀", "abcdefghijklmnopqrstuvwxyz"]  # fmt: skip
    texts = []
    for _ in range(n):
        parts = []
        for _ in range(rng.randrange(12)):
            letters = rng.choice(kinds[:3] if rng.random() < 0.6 else kinds)
            parts.append("".join(rng.choices(letters, k=rng.choice([1, 1, 2, 5, 17, 40, 90]))))
        texts.append("".join(parts))
    return texts


@pytest.mark.parametrize("name", ENGINES)
def test_equals_the_two_steps(name):
    engine = TextEngine(*ENGINES[name])
    maps = () if engine.normalizer is None else engine.normalizer.character_maps()
    splitter = engine.pretokenizer.steps[0].classed(*maps)
    assert splitter.tables[-2] == WINDOWS[name]
    # A hard character is left to the two steps, with all documents that come with it.
    easy = [text for text in [*[text or "" for text in TEXTS], *generated(1, 400), ""] if "\u1b44" not in text]
    documents = Documents.from_strings(easy)
    data, ends, document_ends = splitter.split(documents)
    assert equal(Words(data, 0, ends, document_ends), in_steps(engine, documents))
    documents = Documents.from_strings(generated(2, 50))
    assert equal(engine.split(documents), in_steps(engine, documents))


@pytest.mark.parametrize(
    "name",
    ["uncased", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cased", "not cleaned", "signs", "white space"))],
)
def test_every_code_point_alone_and_in_a_word(name):
    engine = TextEngine(*ENGINES[name])
    hard = set(np.flatnonzero(engine._classed.hard).tolist())
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and c not in hard]
    documents = Documents.from_strings([f"{c} Ab{c}c!{c}{c}\n" for c in characters])
    data, ends, document_ends = engine._classed.split(documents)
    assert equal(Words(data, 0, ends, document_ends), in_steps(engine, documents))
    assert len(hard) == (96 if name in ("uncased", "not cleaned") else 0)


def test_what_is_not_split_in_one_pass():
    for given in [
        "gpt2", "digits", "unicode_scripts", {"type": "split", "pattern": "ab", "behavior": "removed"},
        {"type": "split", "pattern": "[a-c]+[a-d]", "behavior": "removed", "invert": True},
        {"type": "split", "pattern": "[ab]{1,2}", "behavior": "removed", "invert": True},
        {"type": "split", "pattern": r"\s+(?!\S)", "behavior": "removed"},
    ]:  # fmt: skip
        assert PreTokenizer(given).steps[0].classed() is None
    for pretokenizer, normalizer in [
        ("bert", "nfc"), ("bert", ["bert", "lowercase"]), (["bert", "digits"], "bert"), ("metaspace", "lowercase"),
    ]:  # fmt: skip
        assert TextEngine(pretokenizer, normalizer)._classed is None


def test_the_words_of_the_step_before_are_cut_one_by_one():
    words = PreTokenizer(["digits", "whitespace_split"]).split(Documents.from_strings(["a 1b\u3000c", "", " 2 3", "4"]))
    assert words.to_texts() == [["a", "1", "b", "c"], [], ["2", "3"], ["4"]]
    assert words.at_start.tolist() == [True, True, False, True]
    metaspace = [{"type": "metaspace", "prepend": "first"}]
    assert PreTokenizer(["whitespace_split", *metaspace]).split_text("a b") == ["▁a", "b"]
    assert PreTokenizer(["whitespace_split", *metaspace]).split_text("\u3000a b") == ["a", "b"]


def test_more_words_than_there_is_room_for_at_first():
    engine = TextEngine("bert", "bert")
    documents = Documents.from_strings(["!" * 3_000_000, "a" * 3_000_000, "한" * 10, " " * 70])
    words = engine.split(documents)
    assert words.document_ends.tolist() == [3_000_000, 3_000_001, 3_000_002, 3_000_002]
    assert words.size == 6_000_000 + 90


def test_documents_that_are_not_valid_utf8():
    engine = TextEngine("bert", "bert")
    raw = [b"a\xe6", b"\xe6\x97", b"\xf0\x9f\x98 b", b"\xc3", b"", b"x" * 200]
    words = engine.split(Documents.raw(pa.array(raw, pa.large_binary())))
    assert words.document_ends[-1] == len(words.ends)
