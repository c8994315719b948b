"""Token frequencies, lengths and groups, against plain counting."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from shardpiece.errors import FormatError, ShardpieceError
from shardpiece.shards.statistics import Statistics, bin_range, length_bins


def batches(seed: int, vocab_size: int = 500):
    generator = np.random.default_rng(seed)
    for dtype in ("<u2", "<i4", "<u4"):
        lengths = generator.integers(0, 40, 30) * generator.integers(0, 2, 30)
        offsets = np.append(0, np.cumsum(lengths))
        tokens = generator.integers(0, vocab_size, offsets[-1]).astype(dtype)
        groups = [("en", "de", None)[i] for i in generator.integers(0, 3, 30)]
        yield tokens, offsets, groups, offsets * 4 + 100


def counted(seed: int) -> Statistics:
    statistics = Statistics.empty(500)
    for tokens, offsets, groups, text_offsets in batches(seed):
        statistics.add(tokens, offsets)
        statistics.add_groups(pa.array(groups, pa.string()), np.diff(text_offsets), np.diff(offsets))
    return statistics


def test_counts_are_those_of_plain_python():
    statistics = counted(1)
    frequencies, lengths, groups = Counter(), Counter(), {}
    for tokens, offsets, names, _ in batches(1):
        frequencies.update(tokens.tolist())
        for i, name in enumerate(names):
            size = int(offsets[i + 1] - offsets[i])
            lengths[size.bit_length()] += 1
            of_group = groups.setdefault(name or "", [0, 0, 0])
            of_group[0] += 1
            of_group[1] += 4 * size
            of_group[2] += size
    assert {i: n for i, n in enumerate(statistics.frequencies.tolist()) if n} == frequencies
    assert {i: n for i, n in enumerate(statistics.lengths.tolist()) if n} == lengths
    assert {name: figures.tolist() for name, figures in statistics.groups.items()} == groups
    assert statistics.documents == 90
    assert statistics.tokens == sum(frequencies.values())


@pytest.mark.parametrize("dtype", ["<u2", "<i4", "<u4"])
@pytest.mark.parametrize("at", [0, 4095, 4096, 9999])
def test_ids_outside_the_vocabulary_are_refused(dtype, at):
    tokens = np.arange(10_000).astype(dtype) % 500
    statistics = Statistics.empty(500)
    statistics.add(tokens[::2], np.array([0, 5000]))
    assert statistics.frequencies.tolist() == np.bincount(tokens[::2], minlength=500).tolist()
    for bad in (500, -1 if dtype == "<i4" else 65_535):
        with pytest.raises(ShardpieceError, match="outside the vocabulary of 500"):
            statistics.add(np.where(np.arange(10_000) == at, bad, tokens).astype(dtype), np.array([0, 10_000]))


def test_files_and_sums():
    raw = counted(1).to_bytes()
    assert raw == counted(1).to_bytes()
    total = Statistics.from_bytes(raw, "x")
    total.merge(counted(2))
    both = Statistics.empty(500)
    for seed in (2, 1):
        both.merge(counted(seed))
    assert total.to_bytes() == both.to_bytes()
    with pytest.raises(FormatError, match="do not add up"):
        total.merge(Statistics.empty(501))
    assert Statistics.from_bytes(Statistics.empty(7).to_bytes(), "x").tokens == 0


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"x" * 100])
def test_damage_is_named(raw):
    with pytest.raises(FormatError, match="here: damaged, or not statistics"):
        Statistics.from_bytes(raw, "here")


def test_bins():
    lengths = np.array([0, 1, 2, 3, 4, 7, 8, 2**31, 2**40 - 1])
    for length, k in zip(lengths.tolist(), length_bins(lengths).tolist(), strict=True):
        first, last = bin_range(k)
        assert first <= length <= last
