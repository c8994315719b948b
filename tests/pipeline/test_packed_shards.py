"""Packed and shuffled shards through the encode stage: the right tokens, the same bytes on any way there."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.corpus.keys import document_hash
from shardpiece.errors import ConfigError, DataError
from shardpiece.pipeline.encode.stage import encode
from shardpiece.pipeline.verify import verify
from shardpiece.shards.packing import STATISTICS
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.shard_decoding import decoded_documents
from tests.conftest import TEXTS, corpus_rows, input_rows, write_corpus
from tests.pipeline.test_stages import config_for, contents, interrupt

LENGTH = 64


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """Where it lies."""
    table = shardpiece.WordTable.from_texts([text for text in TEXTS if text], "gpt2")
    place = str(tmp_path_factory.mktemp("packed") / "tokenizer")
    artifact.save(shardpiece.train_bpe(table, 300, special_tokens=["<|endoftext|>", "<|pad|>"]), place)
    return place


@pytest.fixture(scope="module")
def split_corpus(tmp_path_factory):
    """More than one shard of a megabyte: documents of all kinds, and one that is longer than most shards."""
    rows = corpus_rows(30)
    rows[100]["text"] = "a long one " * 100_000
    return write_corpus(tmp_path_factory.mktemp("split") / "data", rows, row_group_size=40)


def packed_config(corpus, output, tokenizer, shuffle="none", formats="bin", **packing):
    return config_for(
        corpus, output, encode__tokenizer=tokenizer, encode__format=formats, encode__append_eos=True,
        encode__packing={"sequence_length": LENGTH, **packing}, encode__shuffle=shuffle,
    )  # fmt: skip


def documents(corpus, tokenizer):
    """{id: tokens with <|endoftext|>} in the order of the input."""
    loaded = shardpiece.load(tokenizer)
    eos = loaded.special_id("<|endoftext|>")
    return {row["id"]: [*loaded.encode(row["text"] or ""), eos] for row in input_rows(corpus)}


def shards(output, place=""):
    manifest = json.loads((output / "shards" / "manifest.json").read_text())
    paths = [output / "shards" / f"{place}{shard['name']}.bin" for shard in manifest["shards"]]
    return manifest, [np.fromfile(path, "<u2").reshape(-1, LENGTH) for path in paths]


def test_concatenated_rows_with_a_last_shard_of_tails(session, split_corpus, tmp_path, tokenizer):
    report = encode(session, packed_config(split_corpus, tmp_path, tokenizer, remainder="carry", pad_token="<|pad|>"))
    manifest, rows = shards(tmp_path)
    expected = documents(split_corpus, tokenizer)
    assert len(rows) > 2
    *most, last = manifest["shards"]
    stream = list(expected.values())
    tails = []
    for shard, found in zip(most, rows, strict=False):
        tokens = [token for document in stream[: shard["documents"]] for token in document]
        del stream[: shard["documents"]]
        whole = len(tokens) // LENGTH * LENGTH
        assert found.ravel().tolist() == tokens[:whole]
        tails += tokens[whole:]
        assert shard["packing"]["carried_tokens"] == len(tokens) - whole
    assert stream == []
    pad = shardpiece.load(tokenizer).special_id("<|pad|>")
    assert rows[-1].ravel().tolist() == [*tails, *[pad] * (-len(tails) % LENGTH)]
    assert (last["documents"], last["tokens"], last["sources"]) == (0, 0, [])
    totals = manifest["totals"]
    assert totals["documents"] == len(expected)
    assert totals["tokens"] == totals["packing"]["packed_tokens"] == sum(map(len, expected.values()))
    assert totals["rows"] == report.figures["sequences"] == sum(map(len, rows))
    assert set(totals["packing"]) == set(STATISTICS)
    assert manifest["packing"] == {
        "strategy": "concatenate", "sequence_length": LENGTH, "remainder": "carry", "long_documents": "split", "pad_id": pad,
    }  # fmt: skip
    assert verify(str(tmp_path / "shards")).problems == []
    decoded = list(decoded_documents(str(tmp_path / "shards"), shardpiece.load(tokenizer)))
    assert [count for _, count, _ in decoded] == [LENGTH] * totals["rows"]


def test_shuffled_best_fit_holds_every_document_and_gives_the_same_bytes(session, split_corpus, tmp_path, tokenizer):
    settings = {"strategy": "best_fit", "remainder": "carry", "formats": ["bin", "parquet"]}
    config = packed_config(split_corpus, tmp_path / "a", tokenizer, "shard", **settings)
    encode(session, config)
    manifest, rows = shards(tmp_path / "a", "bin/")
    eos = shardpiece.load(tokenizer).special_id("<|endoftext|>")
    found, pads = Counter(), 0
    for shard in manifest["shards"]:
        for row in pq.read_table(tmp_path / "a" / "shards" / "parquet" / f"{shard['name']}.parquet").to_pylist():
            at = 0
            for name, length in zip(row["doc_ids"], row["doc_lengths"], strict=True):
                found[name, tuple(row["tokens"][at : at + length])] += 1
                at += length
            assert set(row["tokens"][at:]) <= {eos}
            pads += LENGTH - at
    tokens = documents(split_corpus, tokenizer)
    assert found == Counter(
        (name, tuple(document[at : at + LENGTH]))
        for name, document in tokens.items()
        for at in range(0, len(document), LENGTH)
    )
    assert manifest["totals"]["packing"]["pad_tokens"] == pads
    assert manifest["totals"]["packing"]["packed_tokens"] == sum(map(len, tokens.values()))
    assert manifest["shuffle"] == {"kind": "shard", "seed": 0}
    checked = verify(str(tmp_path / "a" / "shards"), shardpiece.load(tokenizer), [str(split_corpus)])
    assert checked.problems == []

    # With little memory the bytes are the same; with another seed the same rows are in other places.
    small = packed_config(split_corpus, tmp_path / "b", tokenizer, "shard", **settings)
    small = small.model_copy(update={"encode": small.encode.model_copy(update={"memory_per_task": 1 << 20})})
    encode(session, small)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    other = packed_config(split_corpus, tmp_path / "c", tokenizer, "shard", **settings)
    encode(session, other.model_copy(update={"encode": other.encode.model_copy(update={"seed": 1})}))
    _, rows_of_other = shards(tmp_path / "c", "bin/")
    assert not np.array_equal(rows[0], rows_of_other[0])
    assert contents(tmp_path / "a") != contents(tmp_path / "c")


def test_a_restart_packs_the_tails_again(session, split_corpus, tmp_path, tokenizer):
    config = packed_config(split_corpus, tmp_path, tokenizer, remainder="carry")
    encode(session, config)
    before = contents(tmp_path)
    tails = sorted((tmp_path / "shards" / "_journal").glob("*.tail.arrow"))
    names = sorted(path.stem for path in (tmp_path / "shards" / "_journal").glob("*.json"))
    interrupt(tmp_path / "shards")
    tails[0].unlink()  # its shard is made again
    (tmp_path / "shards" / "_journal" / f"{names[-1]}.json").unlink()
    encode(session, config)
    assert contents(tmp_path) == before
    assert tails[0].exists()


def test_documents_in_shuffled_order(session, corpus, tmp_path, tokenizer):
    config = config_for(corpus, tmp_path, encode__tokenizer=tokenizer, encode__shuffle="shard", encode__seed=11)
    encode(session, config)
    decoded = list(decoded_documents(config.shards_path, shardpiece.load(tokenizer)))
    rows = {row["id"]: (row["text"] or "").encode() for row in input_rows(corpus)}
    keys = dict(zip(rows, document_hash(11, pa.array(list(rows)), "shuffle").tolist(), strict=True))
    assert [name for name, _, _ in decoded] == sorted(rows, key=keys.get)
    assert {name: raw for name, _, raw in decoded} == rows


def test_mistakes_are_found_before_the_job(session, corpus, tmp_path, tokenizer):
    with pytest.raises(ConfigError, match=r"no special token '<pad>'"):
        encode(session, packed_config(corpus, tmp_path, tokenizer, pad_token="<pad>"))
    config = packed_config(corpus, tmp_path, tokenizer)
    other = {"append_eos": False, "eos_token": "<eos>"}
    with pytest.raises(ConfigError, match=r"'<eos>' is not among the special tokens"):
        encode(session, config.model_copy(update={"encode": config.encode.model_copy(update=other)}))
    wrong = config.model_copy(update={"encode": config.encode.model_copy(update={"metadata_columns": ["lang"]})})
    with pytest.raises(ConfigError, match="metadata_columns"):
        encode(session, wrong)


def test_a_document_without_an_id_cannot_be_put_in_order(session, tmp_path, tokenizer):
    rows = corpus_rows(1)
    rows[4]["id"] = None
    corpus = write_corpus(tmp_path / "corpus", rows, files=1)
    with pytest.raises(DataError, match=r"part-00000\.parquet, row 4: the document has no id"):
        encode(session, config_for(corpus, tmp_path / "out", encode__tokenizer=tokenizer, encode__shuffle="shard"))


def test_temporary_files_lie_where_sparks_do(session):
    def directories(batches):
        import os

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"place": [os.environ.get("SPARK_LOCAL_DIRS", "")] * batch.num_rows})

    (row,) = session().range(1).mapInArrow(directories, "place string").collect()
    assert all("blockmgr" in place for place in row.place.split(","))
