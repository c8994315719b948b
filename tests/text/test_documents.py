"""Arrow columns and Python strings become the same documents."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, DocumentError
from shardpiece.text.documents import Documents


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
