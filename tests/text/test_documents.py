"""Arrow columns and Python strings become the same documents."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, DocumentError
from shardpiece.text.documents import Documents
from shardpiece.text.pretokenizers import PRETOKENIZERS, PreTokenizer
from shardpiece.text.utf8_kernels import is_utf8
from tests.text.test_pretokenizers import DROPS


def raw(documents: Documents) -> list[bytes]:
    o = documents.offsets
    return [documents.data[o[d] : o[d + 1]].tobytes() for d in range(len(documents))]


TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(), pa.binary_view()]


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_every_text_type_gives_the_same_documents(kind):
    texts = ["a", None, "", "é" * 40, "日本"]
    values = [t if t is None or "string" in str(kind) else t.encode() for t in texts]
    documents = Documents.from_arrow(pa.array(values, kind))
    assert raw(documents) == [(t or "").encode() for t in texts]
    assert (documents.nulls, documents.empty, documents.replaced) == (1, 1, 0)
    assert documents.size == sum(len((t or "").encode()) for t in texts)


def test_dictionaries_chunks_slices_and_nothing():
    column = pa.array(["x", "yy", "x", None]).dictionary_encode()
    assert raw(Documents.from_arrow(column)) == [b"x", b"yy", b"x", b""]
    chunked = pa.chunked_array([["a", "b"], ["c"]])
    assert raw(Documents.from_arrow(chunked)) == [b"a", b"b", b"c"]
    sliced = pa.array(["skip", "one", "two", "three"]).slice(1, 2)
    assert raw(Documents.from_arrow(sliced)) == [b"one", b"two"]
    assert len(Documents.from_arrow(pa.array([], pa.string()))) == 0
    assert len(Documents.from_arrow(pa.chunked_array([], pa.string()))) == 0
    assert Documents.from_arrow(pa.nulls(3)).nulls == 3
    assert Documents.from_strings([]).size == 0


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_invalid_utf8_is_replaced_as_python_does(values):
    documents = Documents.from_arrow(pa.array(values, pa.binary()))
    assert raw(documents) == [v.decode(errors="replace").encode() for v in values]
    bad = [v for v in values if v.decode(errors="replace").encode() != v]
    assert documents.replaced == len(bad)


def is_valid(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_utf8_of_every_length_at_every_place_of_a_block():
    """All leads with all kinds of bytes behind them, whole and cut off, around the border of two blocks of 64 bytes."""
    second = (0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2)
    later = (0x41, 0x80, 0xBF, 0xE0)
    texts = [bytes([lead]) for lead in range(0x7E, 0x100)]
    texts += [bytes([lead, b]) for lead in range(0xBE, 0x100) for b in second]
    texts += [bytes([lead, b, c]) for lead in range(0xDE, 0xF8) for b in second for c in later]
    texts += [bytes([lead, b, c, d]) for lead in range(0xEE, 0xF8) for b in second for c in later for d in later]
    checked = 0
    for text in texts:
        for before in (0, 3, 59, 60, 61, 62, 63, 64, 124, 126):
            for after in (b"", b"x" * 70):
                raw = b"a" * before + text + after
                documents = np.frombuffer(b"?" + raw, np.uint8)
                assert is_utf8(documents, np.array([1, len(raw) + 1])) == is_valid(raw), raw
                checked += 1
    assert checked > 40_000


@given(
    st.lists(
        st.lists(
            st.sampled_from([b"a" * 61, b"ab", "é".encode(), "漢".encode(), "😀".encode(), b"\x80", b"\xe0\xa0"])
        ).map(b"".join)
    )
)
def test_a_character_does_not_lie_across_documents(values):
    documents = Documents.from_arrow(pa.array(values, pa.binary()))
    assert raw(documents) == [v.decode(errors="replace").encode() for v in values]
    assert documents.replaced == sum(not is_valid(v) for v in values)


def test_invalid_utf8_can_be_an_error_and_names_the_document():
    column = pa.array([b"fine", b"bad \xff\xfe", b"\x80"], pa.binary())
    with pytest.raises(DocumentError, match="invalid UTF-8 at byte 4") as caught:
        Documents.from_arrow(column, "error")
    assert caught.value.index == 1
    with pytest.raises(ConfigError):
        Documents.from_arrow(column, "ignore")


def test_invalid_utf8_in_a_string_column_does_not_pass():
    sneaky = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xc3\x28")]
    )
    assert raw(Documents.from_arrow(sneaky)) == ["\ufffd(".encode()]


def test_lone_surrogates_are_replaced_and_pairs_joined():
    documents = Documents.from_strings(["a\ud800b", "\ud83d\ude00", "\udfff"])
    assert raw(documents) == ["a\ufffdb".encode(), "😀".encode(), "\ufffd".encode()]
    assert documents.replaced == 3


def test_ten_million_random_bytes():
    """Random bytes, bytes that look like UTF-8, and valid UTF-8 with a byte changed: what Python makes of them is split by
    every named pre-tokenizer, and as they are they crash none."""
    rng = np.random.default_rng(6)
    leads = rng.choice(np.frombuffer(b"\xc2\xe0\xed\xef\xf0\xf4\xf5\xff\x80\xbf\x90\xa0 a'1\n", np.uint8), 4_000_000)
    text = np.frombuffer("naïve 日本語 😀 it's 123\n".encode() * 100_000, np.uint8)[:3_000_000].copy()
    text[rng.integers(0, len(text), 100_000)] = rng.integers(0, 256, 100_000)
    soup = np.concatenate([rng.integers(0, 256, 3_000_000, np.uint8), leads, text]).tobytes()
    cuts = np.unique(rng.integers(0, len(soup), 20_000)).tolist()
    values = [soup[a:b] for a, b in itertools.pairwise([0, *cuts, len(soup)])]
    documents = Documents.from_arrow(pa.array(values, pa.binary()))
    assert documents.data.tobytes() == b"".join(v.decode(errors="replace").encode() for v in values)
    unchecked = Documents.raw(pa.array(values, pa.large_binary()))
    for name in PRETOKENIZERS:
        pretokenizer = PreTokenizer(name)
        for batch in (documents, unchecked):
            words = pretokenizer.split(batch)
            assert (np.diff(words.ends, prepend=words.start) > 0).all()
            assert len(words.document_ends) == len(values)
            assert words.document_ends[-1] == len(words.ends)
            if not name.startswith("metaspace") and name not in DROPS:
                assert words.size == batch.size
