"""Hashes of document ids, and what goes by them."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from shardpiece.corpus.keys import below, document_hash, fraction, threshold

IDS = ["", "a", "b", "naïve/日本", "x" * 1000, "a\0b"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_hash_is_of_purpose_seed_and_id(kind):
    found = document_hash(-7, pa.array(IDS, kind), "shuffle")
    assert found.dtype == np.uint64
    assert found.tolist() == [xxhash.xxh3_64_intdigest(b"shuffle\x00-7\x00" + name.encode()) for name in IDS]
    sliced = document_hash(-7, pa.array(["zz", *IDS, "yy"], kind).slice(1, len(IDS)), "shuffle")
    assert sliced.tolist() == found.tolist()
    assert document_hash(0, pa.array([], kind), "shuffle").tolist() == []


def test_hashes_stay_as_they_are():
    """Written once and never changed: a corpus that grows keeps its validation documents."""
    assert document_hash(0, pa.array(["doc-1", "doc-2"]), "validation").tolist() == [
        14062659020673261944,
        4187520963481256688,
    ]


def test_purposes_and_seeds_are_independent():
    ids = pa.array([f"document {i}" for i in range(20_000)])
    chosen = below(document_hash(0, ids, "validation"), 0.1)
    assert abs(chosen.mean() - 0.1) < 0.01
    for other in (document_hash(1, ids, "validation"), document_hash(0, ids, "sample")):
        assert abs(below(other, 0.5)[chosen].mean() - 0.5) < 0.05


def test_shares_are_exact():
    edges = np.array([0, (1 << 62) - 1, 1 << 62, (1 << 64) - 1], np.uint64)
    assert below(edges, 0.25).tolist() == [True, True, False, False]
    assert below(edges, 1.0).tolist() == [True] * 4
    assert below(edges, 0.0).tolist() == [False] * 4
    assert threshold(Fraction(1, 3)) == (1 << 64) // 3
    assert threshold(0.1) == int(Fraction(0.1) * (1 << 64))
    assert fraction(edges).tolist() == [0.0, ((1 << 62) - 1 >> 11) / (1 << 53), 0.25, 1 - 2.0**-53]


def test_a_greater_share_keeps_what_a_smaller_one_has():
    hashes = document_hash(3, pa.array([str(i) for i in range(1000)]), "sample")
    before = np.zeros(1000, np.bool_)
    for share in (0.0, 1e-9, 0.1, 0.1 + 1e-12, 0.5, 0.999, 1.0):
        now = below(hashes, share)
        assert not (before & ~now).any()
        before = now


def test_a_null_is_no_id():
    with pytest.raises(ValueError, match="null"):
        document_hash(0, pa.array(["a", None]), "sample")
