"""Training from a table that only executors read: the merges of the whole table, whatever its partitioning."""

import json

import numpy as np
import pytest

from shardpiece.config import load_config
from shardpiece.errors import ConfigError, FormatError
from shardpiece.pipeline import reduce
from shardpiece.pipeline.count import count
from shardpiece.pipeline.reduce import reduce_and_learn
from shardpiece.training.merge_loop import learn_merges
from shardpiece.words.table import WordTable

BYTES = [bytes([b]) for b in range(256)]


@pytest.fixture(scope="module")
def directory(session, corpus, tmp_path_factory):
    """A word table with groups, in several parts."""
    output = tmp_path_factory.mktemp("reduce")
    config = load_config(None, {"input": [str(corpus)], "output": str(output), "group_column": "lang"})
    spark = session()
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    try:
        count(session, config)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
    return config.words_path


@pytest.fixture(scope="module")
def table(directory):
    return WordTable.read(directory).arrays()


def test_merges_are_those_of_the_whole_table(session, directory, table, monkeypatch):
    # Tasks that hand on what they have after every batch.
    monkeypatch.setattr(reduce, "_MOST_PAIRS", 0)
    monkeypatch.setattr(reduce, "_MOST_SYMBOLS", 0)
    ids = np.arange(256, dtype=np.int32)[::-1].copy()
    said = []
    given = {"symbol_ids": ids, "tie_break": "id", "max_token_length": 12, "reserved": (b"the",)}
    expected = learn_merges(*table, BYTES[::-1], 60, **given)
    result, certificate = reduce_and_learn(session, directory, BYTES[::-1], 60, log=said.append, **given)
    assert result.merges.tolist() == expected.merges.tolist()
    assert result.counts.tolist() == expected.counts.tolist()
    assert certificate.holds
    assert certificate.last_count == expected.counts[-1] >= certificate.floor
    assert len(said) == len(certificate.epochs) > 1
    # Words of one byte are no part of the state.
    assert certificate.epochs[0].symbols == sum(n for n in np.diff(table[1]) if n > 1)
    assert certificate.epochs[0].words == sum(np.diff(table[1]) > 1)


def test_a_failing_certificate_is_redone(session, directory, table):
    floor = int(learn_merges(*table, BYTES, 1).counts[0])
    expected = learn_merges(*table, BYTES, 4)
    result, certificate = reduce_and_learn(session, directory, BYTES, 4, floor=floor)
    assert result.merges.tolist() == expected.merges.tolist()
    assert result.counts.tolist() == expected.counts.tolist()
    assert certificate.holds
    assert certificate.redone[0] == floor


def test_what_cannot_be(session, directory, tmp_path):
    with pytest.raises(ConfigError, match="first_seen"):
        reduce_and_learn(session, directory, BYTES, 5, tie_break="first_seen")
    with pytest.raises(FormatError, match="no word table"):
        reduce_and_learn(session, str(tmp_path), BYTES, 5)


def test_a_changed_part_is_found_out(session, directory, tmp_path):
    manifest = json.loads((tmp_path.__class__(directory) / "words.json").read_text())
    for part in manifest["files"]:
        (tmp_path / part["name"]).write_bytes((tmp_path.__class__(directory) / part["name"]).read_bytes())
    manifest["files"][-1]["rows"] += 1
    (tmp_path / "words.json").write_text(json.dumps(manifest))
    with pytest.raises(FormatError, match="rows, but words.json says"):
        reduce_and_learn(session, str(tmp_path), BYTES, 5)
