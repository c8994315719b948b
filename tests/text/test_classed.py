"""Normalizing and splitting in one pass, against the two steps one after the other."""

import random

import numpy as np
import pyarrow as pa
import pytest

from shardpiece.text import classed_kernels as k
from shardpiece.text.classed import ClassedSplitter
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
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


def two_steps(engine: TextEngine, documents: Documents) -> list[list[bytes]]:
    normalized = documents if engine.normalizer is None else engine.normalizer.normalize(documents)
    return engine.pretokenizer.split(normalized).to_list()


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
    splitter = ClassedSplitter.of(engine.normalizer, engine.pretokenizer)
    window = splitter.tables[-2]
    assert window == WINDOWS[name]
    texts = [text or "" for text in TEXTS]
    # A hard character is left to the two steps, with all documents that come with it.
    easy = [text for text in [*texts, *generated(1, 400)] if "\u1b44" not in text]
    documents = Documents.from_strings([*easy, ""])
    assert splitter.split(documents).to_list() == two_steps(engine, documents)
    documents = Documents.from_strings(generated(2, 50))
    assert engine.split(documents).to_list() == two_steps(engine, documents)


@pytest.mark.parametrize(
    "name",
    ["uncased", "white space", *(pytest.param(n, marks=pytest.mark.slow) for n in ("cased", "not cleaned", "signs"))],
)
def test_every_code_point_alone_and_in_a_word(name):
    engine = TextEngine(*ENGINES[name])
    splitter = ClassedSplitter.of(engine.normalizer, engine.pretokenizer)
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    hard = set(np.flatnonzero(splitter.hard).tolist())
    texts = [f"{c} Ab{c}c!{c}{c}\n" for c in characters if ord(c) not in hard]
    documents = Documents.from_strings(texts)
    words, expected = splitter.split(documents), engine.normalizer.normalize(documents)
    expected = engine.pretokenizer.split(expected)
    assert np.array_equal(words.document_ends, expected.document_ends)
    assert np.array_equal(words.ends, expected.ends - expected.start)
    assert np.array_equal(words.data, expected.data[expected.start : expected.start + expected.size])
    assert len(hard) == (96 if name in ("uncased", "not cleaned") else 0)


def test_what_is_not_split_in_one_pass():
    for pretokenizer, normalizer in [
        ("gpt2", None), ("bert", "nfc"), ("bert", ["bert", "lowercase"]), (["bert", "digits"], None), ("metaspace", None),
        ("digits", None), ({"type": "split", "pattern": "ab", "behavior": "removed"}, None),
        ({"type": "split", "pattern": "[a-c]+[a-d]", "behavior": "removed", "invert": True}, None),
        ({"type": "split", "pattern": "[ab]{1,2}", "behavior": "removed", "invert": True}, None), ("unicode_scripts", None),
    ]:  # fmt: skip
        engine = TextEngine(pretokenizer, normalizer)
        assert ClassedSplitter.of(engine.normalizer, engine.pretokenizer) is None


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
