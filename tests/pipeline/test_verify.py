"""What shardpiece verify finds: every kind of damage, by name, and nothing where there is none."""

import json
import re
import shutil
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import shardpiece
from shardpiece.cli import cli
from shardpiece.config import load_config
from shardpiece.pipeline.encode.stage import encode
from shardpiece.pipeline.source_check import Digest, digest, hashes_of_batches, members, named_differences
from shardpiece.pipeline.verify import verify
from shardpiece.shards.formats.base import TokenBatch
from tests.conftest import TEXTS, corpus_rows, write_corpus


@pytest.fixture(scope="module")
def made(session, tmp_path_factory):
    """(directory with corpus/, tokenizer/ and shards/, the tokenizer)."""
    base = tmp_path_factory.mktemp("verify")
    write_corpus(base / "corpus", corpus_rows(4), files=3, row_group_size=7)
    words = shardpiece.WordTable.from_texts([text or "" for text in TEXTS], "gpt2")
    tokenizer = shardpiece.train_bpe(words, 300, special_tokens=["<|endoftext|>"])
    shardpiece.save(tokenizer, str(base / "tokenizer"))
    encode(session, load_config(None, {
        "input": [str(base / "corpus")], "id_column": "id", "group_column": "lang", "output": str(base),
        "encode.format": ["bin", "parquet"], "encode.append_eos": True, "encode.empty_documents": "skip",
        "encode.shard_size": "1MiB",
    }))  # fmt: skip
    return base, tokenizer


@pytest.fixture
def shards(made, tmp_path):
    return shutil.copytree(made[0] / "shards", tmp_path / "shards")


def edited(shards, change):
    path = shards / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_nothing_is_wrong_with_what_was_written(made, shards):
    base, tokenizer = made
    for workers in (1, 2):
        done = verify(str(shards), tokenizer, [str(base / "corpus")], workers)
        assert (done.problems, done.notes) == ([], [])
        assert done.compared == done.exact == done.documents == 4 * sum(bool(text) for text in TEXTS)


@pytest.mark.parametrize(("name", "damage", "said"), [
    ("bin/shard-00000.bin", lambda raw: raw[:100] + bytes([raw[100] ^ 1]) + raw[101:], "bin/shard-00000.bin: changed since"),
    ("bin/shard-00000.ends.npy", lambda raw: raw[:-8], "bin/shard-00000.ends.npy: .* bytes, the manifest says"),
    ("parquet/shard-00000.parquet", None, "parquet/shard-00000.parquet: missing"),
    ("statistics/00000.parquet", lambda raw: raw[:-1] + b"x", "statistics/00000.parquet: changed since"),
])  # fmt: skip
def test_damaged_files_are_named(shards, name, damage, said):
    path = shards / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    done = verify(str(shards))
    [problem] = done.problems
    assert re.match(said, problem)


def resealed(shards, name):
    """The manifest says of a changed file what it is now."""

    def change(manifest):
        for shard in manifest["shards"]:
            for file in shard["files"]:
                if file["name"] == name:
                    file["bytes"] = (shards / name).stat().st_size
                    file["checksum"] = shardpiece.storage.checksum(str(shards / name))

    edited(shards, change)


def test_content_that_is_not_the_input_is_named(made, shards):
    """Files that are whole, with other documents than they should have."""
    base, tokenizer = made
    name = "parquet/shard-00000.parquet"
    table = pq.read_table(shards / name)
    rows = table.to_pylist()
    rows[3]["tokens"][0] ^= 1
    pq.write_table(pa.Table.from_pylist(rows, table.schema), shards / name)
    resealed(shards, name)
    problems = verify(str(shards), tokenizer, [str(base / "corpus")]).problems
    assert "shard-00000: its formats hold different tokens" in problems
    rows[3]["tokens"] = [300, *rows[3]["tokens"][1:]]
    pq.write_table(pa.Table.from_pylist(rows[:-1], table.schema), shards / name)
    resealed(shards, name)
    problems = " | ".join(verify(str(shards)).problems)
    assert "shard-00000 as parquet: 1 ids outside the vocabulary of 300" in problems
    assert f"{len(rows) - 1} rows, the manifest says {len(rows)}" in problems


@pytest.mark.parametrize("cut", ["in order", "as a set"])
def test_documents_that_are_lost_or_doubled_are_named(made, shards, cut):
    base, tokenizer = made
    corpus = str(base / "corpus")

    def only_parquet(manifest):
        del manifest["formats"]["bin"]
        for shard in manifest["shards"]:
            shard["files"] = [file for file in shard["files"] if file["format"] == "parquet"]
        if cut == "as a set":
            manifest["settings"]["shuffle"] = "global"

    edited(shards, only_parquet)
    assert verify(str(shards), tokenizer, [corpus]).problems == []
    name = "parquet/shard-00000.parquet"
    table = pq.read_table(shards / name)
    lost, doubled = table["id"][5].as_py(), table["id"][2].as_py()
    order = [0, 1, 2, 3, 4, 2, *range(6, len(table))]
    pq.write_table(table.take(order), shards / name)
    resealed(shards, name)
    edited(shards, lambda manifest: [shard.update(tokens=sum(pq.read_table(shards / name)["n_tokens"].to_pylist()))
                                     for shard in manifest["shards"] if shard["name"] == "shard-00000"])  # fmt: skip
    problems = " | ".join(verify(str(shards), tokenizer, [corpus]).problems)
    if cut == "in order":
        assert f"shard-00000, document 5 ({lost}): the shard has the document {doubled!r} here" in problems
    else:
        assert f"1 documents are lost: {lost}" in problems
        assert f"1 documents are doubled, or not from this input: {doubled}" in problems


@pytest.mark.parametrize(("layout", "compared"), [
    ({"encode.shuffle": "global", "encode.validation": {"fraction": 0.3}, "encode.incremental": True}, True),
    ({"encode.packing": {"sequence_length": 16, "remainder": "carry"}}, False),
])  # fmt: skip
def test_other_layouts(session, made, tmp_path, layout, compared):
    base, tokenizer = made
    config = load_config(None, {
        "input": [str(base / "corpus")], "id_column": "id", "encode.tokenizer": str(base / "tokenizer"),
        "encode.output": str(tmp_path / "shards"), "encode.format": "parquet", **layout,
    })  # fmt: skip
    encode(session, config)
    done = verify(config.shards_path, tokenizer, config.input)
    assert done.problems == []
    assert done.documents == 4 * len(TEXTS)
    assert done.compared == (done.documents if compared else 0)
    assert compared or "packing leaves no document for document to compare" in done.notes[0]


def test_shards_and_input_that_do_not_belong_together(made, shards, tmp_path):
    base, tokenizer = made
    corpus = shutil.copytree(base / "corpus", tmp_path / "corpus")
    [problem, *_] = verify(str(shards), tokenizer, [str(corpus)]).problems
    assert "in the input, but not in the shards" in problem
    other = shardpiece.train_bpe(shardpiece.WordTable.from_texts(["ab ab"], "gpt2"), 260)
    assert "this one is" in " ".join(verify(str(shards), other).problems)
    edited(shards, lambda manifest: manifest["shards"][0]["sources"].pop(1))
    problems = verify(str(shards), tokenizer, [str(base / "corpus")]).problems
    assert any("in no shard" in problem for problem in problems)
    edited(shards, lambda manifest: manifest["totals"].update(tokens=1))
    assert any("1 in its totals" in problem for problem in verify(str(shards)).problems)
    (shards / "bin" / "shard-00099.bin").write_bytes(b"")
    assert "1 files that the manifest does not list, such as bin/shard-00099.bin" in verify(str(shards)).notes[0]


def test_the_command(made, shards):
    base, _ = made
    command = ["verify", str(shards), "--tokenizer", str(base / "tokenizer"), "--input", str(base / "corpus")]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert "all as it should be" in done.output
    (shards / "bin" / "shard-00000.bin").unlink()
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 1
    assert "bin/shard-00000.bin: missing" in done.output
    assert CliRunner().invoke(cli, ["verify", str(shards), "--input", "x"]).exception.exit_code == 2


def test_multisets_by_buckets():
    def batches(documents):
        for name, tokens in documents:
            yield TokenBatch(
                pa.array(tokens, pa.int32()).to_numpy(), pa.array([0, len(tokens)]).to_numpy(), pa.array([name])
            )

    documents = [(str(i), [i, i + 1]) for i in range(500)]
    other = [*documents[1:], documents[7]]
    counted = []
    sums = [digest(hashes_of_batches(batches(some), True)) for some in (documents, documents[::-1], other)]
    assert sums[0].differing(sums[1]).size == 0
    assert Digest().differing(Digest()).size == 0
    buckets = sums[0].differing(sums[2])
    for some in (documents, other):
        counted.append(members(hashes_of_batches(batches(some), True), buckets))
    assert named_differences(*counted) == [
        "1 documents are lost: 0",
        "1 documents are doubled, or not from this input: 7",
    ]


def test_stats_say_what_is_there(made):
    base, tokenizer = made
    command = ["stats", str(base / "shards")]
    said = json.loads(CliRunner().invoke(cli, [*command, "--json"]).output)
    rows = [row for row in corpus_rows(4) if row["text"]]
    ids = [[*tokenizer.encode(row["text"]), 299] for row in rows]
    assert said["totals"]["documents"] == len(rows)
    assert said["groups"] == {
        lang: {
            "documents": sum(row["lang"] == lang for row in rows),
            "bytes": sum(len(row["text"].encode()) for row in rows if row["lang"] == lang),
            "tokens": sum(len(found) for row, found in zip(rows, ids, strict=True) if row["lang"] == lang),
        }
        for lang in ("en", "mul")
    }
    assert {int(token): n for token, n in said["frequencies"].items()} == Counter(i for found in ids for i in found)
    lengths = Counter(len(found).bit_length() for found in ids)
    assert {entry["to"].bit_length(): entry["documents"] for entry in said["lengths"]} == lengths
    shown = CliRunner().invoke(cli, [*command, "--tokenizer", str(base / "tokenizer"), "--top", "3"])
    assert shown.exit_code == 0, shown.output
    assert "most frequent tokens" in shown.output
    assert f"{said['tokens_never_used']} of 300 tokens occur nowhere" in shown.output
