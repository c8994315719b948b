"""The split kernels: the machine that a pattern's automaton becomes, where it gives up, and where memory ends."""

import ctypes
import mmap
import random

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.text import splitter as splitters
from shardpiece.text.dfa import compile_pattern
from shardpiece.text.documents import Documents
from shardpiece.text.patterns import PATTERNS
from shardpiece.text.splitter import Splitter
from tests.text import reference
from tests.text.reference import split_by

# Published patterns match everywhere. These leave gaps, match nothing after long readings, or find longer matches late.
ODD = (
    r"\d+",
    r"abc",
    r"ab|c",
    r"a{0,10}b|a",
    r"(?:a+a+)+b|a",
    r"a(?:ba)*c|a|b",
    r"a+(?!b)",
    r"a*b",
    r"(?:ab)*c|d",
    r"a+b+c+|a|bc",
    r"(?:ab?)+\z|a",
    r" ?\w+",
    r"[^\s\w]+|é",
    r"a.{0,5}b|.",
    r"(?:ab?c?d?)+1|[a-d]+\s|[ab]",
)


@pytest.mark.parametrize("pattern", ODD)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(texts=st.lists(st.text("aabbcd1é \n中", max_size=40), min_size=1, max_size=6))
def test_odd_patterns_split_as_regex(pattern, texts):
    expected = [reference.words(regex.compile(pattern), text) for text in texts]
    assert split_by(Splitter(compile_pattern(pattern)), texts) == expected


@pytest.mark.parametrize("slots", [2, 3])
def test_a_machine_that_gives_up_often_splits_alike(slots, monkeypatch):
    rng = random.Random(1)
    texts = ["".join(rng.choices("ab \n1'é!", k=rng.randrange(60))) for _ in range(200)]
    for name, pattern in PATTERNS.items():
        whole = split_by(Splitter(compile_pattern(pattern), windows=False), texts)
        for setting, value in (("k.SLOTS", slots), ("_MOST_MACHINE_STATES", 4 * slots), ("_LARGEST_TABLE", 0)):
            with monkeypatch.context() as patch:
                patch.setattr(f"shardpiece.text.splitter.{setting}", value)
                assert split_by(Splitter(compile_pattern(pattern), windows=False), texts) == whole, name


def test_published_machines_are_small_and_never_give_up():
    for pattern in PATTERNS.values():
        dfa = compile_pattern(pattern)
        rows, output = splitters._build_machine(dfa.transitions.astype(np.int64))
        assert len(rows) < 100
        # The first row is giving up itself; the second, the start, has no end.
        assert (rows[1:, :-1] != splitters.k.GIVE_UP).all()
        assert (rows[2:, -1] != splitters.k.GIVE_UP).all()
        assert (output & 7).max() < splitters.k.SLOTS


@pytest.mark.parametrize("windows", [True, False])
def test_room_for_the_words_grows(windows, monkeypatch):
    texts = ["a1" * 300, "", "x", "1 " * 5000, "word " * 100, "!a" * 777]
    splitter = Splitter(compile_pattern(PATTERNS["gpt2"]), windows)
    expected = split_by(splitter, texts)
    monkeypatch.setattr(splitters, "_SMALL", 0)
    assert split_by(splitter, texts) == expected
    assert sum(map(len, expected)) > 7000


@pytest.mark.parametrize("name", PATTERNS)
def test_documents_may_begin_anywhere_in_the_data(name):
    text = ("It's 1234 words, éé\n\n  and MORE of them!\n" * 40).encode()
    data = np.frombuffer(text, np.uint8)
    for windows in (True, False):
        splitter = Splitter(compile_pattern(PATTERNS[name]), windows)
        for first, last in ((0, len(text)), (5, len(text) - 7), (43, 120), (90, 90)):
            ends, document_ends = splitter.split(Documents(data, np.array([first, last])))
            starts = [first, *ends.tolist()]
            found = [text[a:b].decode() for a, b in zip(starts, ends.tolist(), strict=False)]
            assert found == reference.words(PATTERNS[name], text[first:last].decode())
            assert document_ends.tolist() == [len(found)]


def before_a_forbidden_page(raw: bytes) -> tuple[np.ndarray, mmap.mmap]:
    """The bytes as an array right before memory that must not be read (and the mapping, to keep it)."""
    page = mmap.PAGESIZE
    size = -(-len(raw) // page) * page + page
    mapping = mmap.mmap(-1, size)
    whole = np.frombuffer(mapping, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + size - page), ctypes.c_size_t(page), 0) == 0
    data = whole[size - page - len(raw) : size - page]
    data[:] = np.frombuffer(raw, np.uint8)
    return data, mapping


def test_nothing_is_read_behind_the_data():
    """Whatever the bytes are: were it not so, this process would end here."""
    rng = random.Random(2)
    splitters_ = [
        Splitter(compile_pattern(pattern), windows) for pattern in PATTERNS.values() for windows in (True, False)
    ]
    for n in (1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 66, 100, 128, 129, 200):
        for raw in (
            b"word " * n,
            bytes(rng.choices(range(256), k=n)),
            bytes(rng.choices(range(0x80, 0x100), k=n)),
            b"a" * (n - 1) + b"\xf0",
            b"a" * (n - 1) + b"\xe4",
            b" " * (n - 1) + b"\xc3",
        ):
            data, mapping = before_a_forbidden_page(raw)
            cut = rng.randrange(len(raw) + 1)
            documents = Documents(data, np.array([0, cut, len(raw)]))
            for with_windows, without in zip(splitters_[::2], splitters_[1::2], strict=True):
                ends, document_ends = with_windows.split(documents)
                assert ends[-1] == len(raw)
                assert (np.diff(ends, prepend=0) > 0).all()
                assert np.array_equal(ends, without.split(documents)[0])
                assert document_ends[0] == np.searchsorted(ends, cut, side="right")
            del documents, data
            del mapping
