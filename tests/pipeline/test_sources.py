"""The stages on every kind of input: the same documents make the same words and the same ids."""

import gzip
import json

import pyarrow as pa
import pyarrow.ipc as ipc
import pytest

import shardpiece
from shardpiece.config import load_config
from shardpiece.errors import ConfigError, DataError, InputError
from shardpiece.pipeline.count import count
from shardpiece.pipeline.encode.stage import encode
from shardpiece.tokenizer.shard_decoding import decoded_documents
from shardpiece.words.table import WordTable
from tests.conftest import corpus_rows, input_rows, write_corpus


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The same documents as Parquet, as a mixture of other formats, and a tokenizer for them."""
    root = tmp_path_factory.mktemp("sources")
    rows = input_rows(write_corpus(root / "parquet", corpus_rows(10), files=3))
    mixed = root / "mixed"
    mixed.mkdir()
    lines = [json.dumps(row) for row in rows]
    (mixed / "a.jsonl").write_text("\n".join(lines[:30]))
    (mixed / "b.json.gz").write_bytes(gzip.compress("\r\n".join(lines[30:60]).encode()))
    table = pa.Table.from_pylist(rows[60:])
    with ipc.new_stream(str(mixed / "c.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    words = shardpiece.WordTable.from_texts([row["text"] or "" for row in rows], "gpt2")
    shardpiece.save(shardpiece.train_bpe(words, 300, special_tokens=["<|endoftext|>"]), str(root / "tokenizer"))
    return root, rows


def configured(places, name, source="mixed", **settings):
    root, _ = places
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    inputs = source if ":" in source else str(root / source)
    fixed = {"input": [inputs], "output": str(root / name), "group_column": "lang", "id_column": "id"}
    return load_config(None, fixed | {"encode.tokenizer": str(root / "tokenizer")} | keys)


def words(config) -> str:
    return WordTable.read(config.words_path).fingerprint


def test_other_formats_count_and_encode_like_parquet(session, places):
    parquet, mixed = configured(places, "p", "parquet"), configured(places, "m")
    for config in (parquet, mixed):
        count(session, config)
        encode(session, config)
    assert words(parquet) == words(mixed)
    tokenizer = shardpiece.load(parquet.encode.tokenizer)
    documents = [[*decoded_documents(config.shards_path, tokenizer)] for config in (parquet, mixed)]
    assert documents[0] == documents[1]
    assert count(session, mixed).skipped
    assert encode(session, mixed).skipped


def test_spark_reads_tables_and_queries(session, places):
    root, _ = places
    files = configured(places, "f", "parquet", where="lang = 'en'", sample={"fraction": 0.5})
    count(session, files)
    session().read.parquet(str(root / "parquet")).createOrReplaceTempView("documents_of_this_test")
    query = f"sql:SELECT * FROM parquet.`{root}/parquet`"
    for name, source in (("t", "table:documents_of_this_test"), ("q", query)):
        config = configured(places, name, source, where="lang = 'en'", sample={"fraction": 0.5})
        count(session, config)
        assert words(config) == words(files)
        assert count(session, config).skipped
    manifest = json.loads((root / "t" / "words" / "words.json").read_text())
    assert manifest["statistics"]["documents"] + manifest["statistics"]["filtered_documents"] == 120
    for source, message in [
        ("table:nowhere", "table:nowhere cannot be read: .*TABLE_OR_VIEW_NOT_FOUND"),
        ("sql:SELEC", "cannot be read: .*PARSE_SYNTAX_ERROR"),
        ("sql:SELECT 1 AS text, 'a' AS lang", "column 'text' holds int32, not text"),
        ("sql:SELECT 'a' AS body", r"no column 'text' \(its columns: body\)"),
    ]:
        with pytest.raises(InputError, match=message):
            count(session, configured(places, "none", source))
    with pytest.raises(ConfigError, match="have none without id_column"):
        count(session, configured(places, "none", query, sample={"fraction": 0.5}, id_column=None))


def test_conditions_and_samples_are_part_of_the_plan(session, places):
    root, rows = places
    plain = configured(places, "w", where="lang = 'en'")
    encode(session, plain)
    tokenizer = shardpiece.load(plain.encode.tokenizer)
    found = [name for name, _, _ in decoded_documents(plain.shards_path, tokenizer)]
    assert found == [row["id"] for row in rows if row["lang"] == "en"]
    assert json.loads((root / "w" / "shards" / "manifest.json").read_text())["where"] == "lang = 'en'"
    with pytest.raises(ConfigError, match="made from other input or settings"):
        encode(session, configured(places, "w", where="lang = 'mul'"))
    sampled = configured(places, "s", sample={"fraction": 0.3, "seed": 4}, encode__format=["parquet"], id_column=None)
    encode(session, sampled)
    kept = {name for name, _, _ in decoded_documents(sampled.shards_path, tokenizer)}
    assert 10 < len(kept) < 70
    assert all(name.startswith(f"{root}/mixed/") for name in kept)


def test_bad_files_and_rows_follow_their_policies(session, places, capfd):
    root, rows = places
    bad = root / "bad"
    bad.mkdir()
    lines = [json.dumps(row) for row in rows]
    (bad / "a.jsonl").write_text("\n".join([*lines[:50], "{broken", *lines[50:]]))
    (bad / "b.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"b\.parquet: not a readable Parquet file"):
        count(session, configured(places, "x", "bad"))
    with pytest.raises(DataError, match=r"a\.jsonl, line 51: not JSON"):
        count(session, configured(places, "x", "bad", bad_files="skip"))
    config = configured(places, "y", "bad", bad_files="skip", bad_rows="skip")
    count(session, config)
    manifest = json.loads((root / "y" / "words" / "words.json").read_text())
    assert manifest["statistics"]["documents"] == len(rows)
    assert manifest["statistics"]["bad_rows"] == 1
    assert [file["path"] for file in manifest["skipped_files"]] == [str(bad / "b.parquet")]
    assert "left out: " + str(bad / "b.parquet") in capfd.readouterr().err
    reference = configured(places, "z", "parquet")
    count(session, reference)
    assert words(config) == words(reference)
    english = sum(row["lang"] == "en" for row in rows)
    for shuffle in ("none", "global"):
        encode(session, configured(places, f"y-{shuffle}", "bad", bad_files="skip", bad_rows="skip",
                                   where="lang = 'en'", encode__shuffle=shuffle))  # fmt: skip
        totals = json.loads((root / f"y-{shuffle}" / "shards" / "manifest.json").read_text())["totals"]
        found = [totals[name] for name in ("documents", "filtered_documents", "bad_rows")]
        assert found == [english, len(rows) - english, 1]


def test_what_a_run_leaves_out_or_has_no_place_for_is_said(session, places, capfd):
    encode(session, configured(places, "none", "parquet", where="lang = 'no such'", encode__format=["bin"],
                               encode__metadata_columns=["lang"]))  # fmt: skip
    said = capfd.readouterr().err
    assert "there are no documents in the shards: where and sample leave none" in said
    assert "nothing stands between documents: pass --append-eos" in said
    assert "bin has no place for metadata, metadata_columns are not used" in said
