"""Where documents go, by the hashes of their ids."""

import numpy as np
import pyarrow as pa
import pytest

from shardpiece.corpus.keys import document_hash
from shardpiece.corpus.mixture import Take
from shardpiece.corpus.order import Placement, Validation, shard_of
from shardpiece.errors import ShardpieceError

IDS = pa.array([f"d{i}" for i in range(3_000)])
GROUPS = pa.array([("wiki", "code", None)[i % 3] for i in range(3_000)])


def test_validation_documents_stay_so():
    few, many = Validation(0.01, 5), Validation(0.2, 5)
    assert abs(many.chosen(IDS).mean() - 0.2) < 0.03
    assert not (few.chosen(IDS) & ~many.chosen(IDS)).any()
    assert (many.chosen(IDS.slice(1_000)) == many.chosen(IDS)[1_000:]).all()
    assert (many.chosen(IDS) != Validation(0.2, 6).chosen(IDS)).any()


def test_copies_by_group():
    takes = {"wiki": Take(2), "code": Take(0, 1 << 62), "": Take(1, 1 << 63)}
    copies = Placement(7, takes).copies(IDS, GROUPS)
    hashes = document_hash(7, IDS, "mixture").tolist()
    names = [name or "" for name in GROUPS.to_pylist()]
    assert copies.tolist() == [takes[g].whole + (h < takes[g].bound) for g, h in zip(names, hashes, strict=True)]
    apart = Validation(0.3)
    fewer = Placement(7, takes, apart).copies(IDS, GROUPS)
    assert (fewer == np.where(apart.chosen(IDS), np.minimum(copies, 1), copies)).all()
    assert Placement(7).copies(IDS, None) is None
    with pytest.raises(ShardpieceError, match="the group 'code' was not there"):
        Placement(7, {"wiki": Take(1), "": Take(1)}).copies(IDS, GROUPS)


@pytest.mark.parametrize("shards", [1, 3, 1000, (1 << 31) - 1])
def test_shards_divide_the_keys_in_their_order(shards):
    keys = np.sort(np.concatenate([Placement(0).keys(IDS), np.array([0, (1 << 64) - 1], np.uint64)]))
    found = shard_of(keys, shards)
    assert found.tolist() == [(key >> 32) * shards >> 32 for key in keys.tolist()]
    assert (np.diff(found) >= 0).all()
    assert found[0] == 0
    assert found[-1] == shards - 1


def test_copies_have_keys_of_their_own():
    placement = Placement(3)
    assert len({*placement.keys(IDS).tolist(), *placement.keys(IDS, 1).tolist()}) == 6_000
    assert (placement.keys(IDS) == document_hash(3, IDS, "shuffle")).all()
