"""The stages on a small corpus: right results, whatever the partitioning; restarts; outputs that are in the way."""

import json
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.config import load_config
from shardpiece.corpus.base import Columns
from shardpiece.corpus.sources import list_files
from shardpiece.corpus.splits import plan_input
from shardpiece.errors import (
    ConfigError,
    DataError,
    FormatError,
    InputError,
    OutputError,
    ShardpieceError,
    TrainingError,
)
from shardpiece.pipeline.count import count
from shardpiece.pipeline.encode.stage import encode
from shardpiece.pipeline.outputs import OutputKind
from shardpiece.pipeline.run import run_all
from shardpiece.pipeline.tasks import document_errors, read_documents
from shardpiece.pipeline.train import train
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.shard_decoding import decoded_documents
from shardpiece.tokenizer.template import Template
from tests.conftest import corpus_rows, input_rows, write_corpus


def config_for(corpus, output, **overrides):
    settings = {
        "input": [str(corpus)],
        "output": str(output),
        "id_column": "id",
        "group_column": "lang",
        "train.vocab_size": 400,
        "encode.shard_size": "1MiB",
    }
    return load_config(None, settings | {key.replace("__", "."): value for key, value in overrides.items()})


def run_stages(session, config):
    return [count(session, config), train(config), encode(session, config)]


def contents(directory):
    """Every artifact file that has to be the same: name → bytes."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.parts[-2] != "_journal" and not path.name.startswith("part-")
    }


def interrupt(directory):
    """Make a finished output what a killed run leaves: the mark of its plan instead of the manifest."""
    manifest = directory / "manifest.json"
    key = json.loads(manifest.read_text())["key"]
    (directory / "_started.json").write_text(json.dumps({"key": key}))
    manifest.unlink()


@pytest.fixture(scope="module")
def done(session, corpus, tmp_path_factory):
    output = tmp_path_factory.mktemp("done")
    config = config_for(corpus, output)
    reports = run_stages(session, config)
    return config, output, reports


def test_word_table_equals_a_plain_counter(done, corpus):
    config, _, _ = done
    table = shardpiece.WordTable.read(config.words_path)
    pretokenizer = shardpiece.PreTokenizer(config.engine_to_count[0])
    expected = Counter()
    for row in input_rows(corpus):
        for piece in (row["text"] or "").split("<|endoftext|>"):
            expected.update((word.encode(), row["lang"]) for word in pretokenizer.split_text(piece))
    rows = table.table.to_pylist()
    assert {(row["word"], row["group"]): row["count"] for row in rows} == expected
    order = [(row["word"], row["group"]) for row in rows]
    assert order == sorted(order)


def test_statistics_count_every_document_once(done, corpus):
    _config, output, reports = done
    rows = input_rows(corpus)
    manifest = json.loads((output / "words" / "words.json").read_text())
    size = sum(len((row["text"] or "").encode()) for row in rows)
    assert manifest["statistics"]["documents"] == len(rows)
    assert manifest["statistics"]["null_documents"] == sum(row["text"] is None for row in rows)
    assert manifest["statistics"]["empty_documents"] == sum(row["text"] == "" for row in rows)
    assert manifest["statistics"]["bytes"] == size == reports[0].figures["bytes"]
    assert sum(manifest["statistics"][k] for k in ("long_words", "long_word_bytes", "replaced_documents")) == 0
    shards = json.loads((output / "shards" / "manifest.json").read_text())
    assert shards["totals"]["documents"] == len(rows)
    assert shards["totals"]["bytes"] == size
    assert shards["totals"]["null_documents"] == manifest["statistics"]["null_documents"]


def test_shards_decode_to_the_input(done, corpus):
    config, _, _ = done
    tokenizer = shardpiece.load(config.tokenizer_path)
    rows = input_rows(corpus)
    decoded = list(decoded_documents(config.shards_path, tokenizer))
    assert [(name, raw) for name, _, raw in decoded] == [(row["id"], (row["text"] or "").encode()) for row in rows]
    assert sum(n for _, n, _ in decoded) == done[2][2].figures["tokens"]


@pytest.mark.parametrize("shard_format", ["parquet", "bin"])
@pytest.mark.parametrize("empty", ["keep", "skip"])
def test_eos_ends_every_document_once(session, done, corpus, tmp_path, shard_format, empty):
    base, _, _ = done
    config = config_for(
        corpus, tmp_path, encode__tokenizer=base.tokenizer_path, encode__append_eos=True, id_column=None,
        encode__format=shard_format, encode__empty_documents=empty,
    )  # fmt: skip
    encode(session, config)
    tokenizer = shardpiece.load(base.tokenizer_path)
    eos = tokenizer.special_id("<|endoftext|>")
    texts = [(row["text"] or "") for row in input_rows(corpus)]
    if empty == "skip":
        texts = [text for text in texts if text]
    expected = [[*tokenizer.encode(text), eos] for text in texts]
    if shard_format == "bin":
        tokens = np.concatenate([np.fromfile(path, "<u2") for path in sorted((tmp_path / "shards").glob("*.bin"))])
        assert tokens.tolist() == [i for ids in expected for i in ids]
    else:
        rows = [r for path in sorted((tmp_path / "shards").glob("*.parquet")) for r in pq.read_table(path).to_pylist()]
        assert [row["tokens"] for row in rows] == expected
        assert rows[0]["id"] == f"{corpus}/part-00000.parquet:0"
    assert [raw.decode() for _, _, raw in decoded_documents(config.shards_path, tokenizer)] == texts


def test_other_partitioning_gives_the_same_bytes(session, done, corpus, tmp_path):
    _, output, _ = done
    config = config_for(
        corpus,
        tmp_path,
        count__memory_per_task="1MiB",
        count__task_size="1MiB",
        spark={"spark.sql.shuffle.partitions": 3},
    )
    run_stages(session, config)
    same, other = contents(output), contents(tmp_path)
    # words.json lists the part files, whose borders Spark chooses; their content is compared by the fingerprint.
    for files in (same, other):
        manifest = json.loads(files.pop("words/words.json"))
        del manifest["files"]
        files["words"] = json.dumps(manifest)
    assert same == other
    a = shardpiece.WordTable.read(str(output / "words"))
    b = shardpiece.WordTable.read(str(tmp_path / "words"))
    assert a.table.combine_chunks() == b.table.combine_chunks()


def test_done_and_unchanged_is_skipped_without_spark(done):
    config, output, _ = done
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}

    def no_spark():
        raise AssertionError("Spark was started for nothing")

    reports = run_stages(no_spark, config)
    assert [report.skipped for report in reports] == [True, True, True]
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before


def test_other_settings_need_overwrite(session, corpus, tmp_path):
    first = config_for(corpus, tmp_path)
    run_stages(session, first)
    other = config_for(corpus, tmp_path, pretokenizer="gpt2", train__vocab_size=350)
    with pytest.raises(OutputError, match="word table made from other input or settings. Pass --overwrite"):
        count(session, other)
    with pytest.raises(OutputError, match="tokenizer made from other"):
        train(config_for(corpus, tmp_path, train__vocab_size=350))
    with pytest.raises(OutputError, match="shards made from other"):
        encode(session, config_for(corpus, tmp_path, encode__append_eos=True))
    run_stages(session, config_for(corpus, tmp_path, pretokenizer="gpt2", train__vocab_size=350, overwrite=True))
    assert shardpiece.load(str(tmp_path / "tokenizer")).vocab_size == 350


def test_names_like_ours_are_not_ours(session, corpus, tmp_path):
    """Spark and Hugging Face name files part-* and shard-*: only a directory with our mark is ever cleared."""
    config = config_for(corpus, tmp_path, overwrite=True)
    for name, file in (("words", "part-00000.parquet"), ("shards", "shard-00000.parquet")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("precious")
    with pytest.raises(OutputError, match="not empty and not a word table"):
        count(session, config)
    train(config_for(corpus, tmp_path, train__words=done_words(session, corpus, tmp_path)))
    with pytest.raises(OutputError, match="not empty and not shards"):
        encode(session, config)
    assert (tmp_path / "words" / "part-00000.parquet").read_text() == "precious"
    assert (tmp_path / "shards" / "shard-00000.parquet").read_text() == "precious"


def done_words(session, corpus, tmp_path) -> str:
    config = config_for(corpus, tmp_path, count__output=str(tmp_path / "elsewhere"))
    count(session, config)
    return config.words_path


def test_the_input_is_never_the_output(session, tmp_path):
    data = write_corpus(tmp_path / "data", corpus_rows(1))
    before = {path.name: path.read_bytes() for path in data.iterdir()}
    for output in (data, data.parent):
        with pytest.raises(OutputError, match="Choose another --output"):
            count(session, config_for(data, tmp_path, count__output=str(output), overwrite=True))
    assert {path.name: path.read_bytes() for path in data.iterdir()} == before


def test_another_run_that_takes_over_is_noticed(session, done, corpus, tmp_path, monkeypatch):
    base, _, _ = done
    start = OutputKind.start

    def start_and_lose(self, lock, key, **how):
        start(self, lock, key, **how)
        (tmp_path / "shards" / "_started.json").write_text(json.dumps({"key": "of another run"}))

    monkeypatch.setattr(OutputKind, "start", start_and_lose)
    with pytest.raises(OutputError, match="another run has taken over"):
        encode(session, config_for(corpus, tmp_path, encode__tokenizer=base.tokenizer_path))
    assert not (tmp_path / "shards" / "manifest.json").exists()
    monkeypatch.undo()
    encode(session, config_for(corpus, tmp_path, encode__tokenizer=base.tokenizer_path, overwrite=True))


@pytest.mark.parametrize("column", ["id", "group"])
def test_ids_and_groups_that_are_no_text_name_the_file(session, tmp_path, column):
    (tmp_path / "data").mkdir()
    table = pa.table({"text": ["a", "b"], "key": pa.array([b"ok", b"\xff"], pa.binary())})
    pq.write_table(table, tmp_path / "data" / "a.parquet")
    plain = {"id_column": None, "group_column": None, "train__vocab_size": 257, f"{column}_column": "key"}
    config = config_for(tmp_path / "data", tmp_path / "out", **plain)
    with pytest.raises(InputError, match=r"a\.parquet: column 'key' cannot be read as text"):
        run_stages(session, config)


def test_damaged_manifests_are_refused_and_can_be_overwritten(session, done, tmp_path):
    base, output, _ = done
    files = [("words", "words.json"), ("tokenizer", "shardpiece.json"), ("shards", "manifest.json")]
    for damage in ("", "[]", "{", '{"format": "x"}', "[" * 100_000):
        shutil.copytree(output, tmp_path / "copy", dirs_exist_ok=True)
        settings = {**base.model_dump(mode="json", exclude={"output"}), "output": str(tmp_path / "copy")}
        for (name, file), stage in zip(files, (count, train, encode), strict=True):
            (tmp_path / "copy" / name / file).write_text(damage)
            arguments = [load_config(None, settings)]
            with pytest.raises(OutputError, match="Pass --overwrite"):
                stage(*([] if stage is train else [session]), *arguments)
            arguments = [load_config(None, settings | {"overwrite": True})]
            assert not stage(*([] if stage is train else [session]), *arguments).skipped
    assert contents(tmp_path / "copy") == contents(output)


def test_an_own_output_is_no_output_of_what_reads_it(session, corpus, tmp_path):
    """Counting a word table's own files into it would remove them first."""
    config = config_for(corpus, tmp_path)
    run_stages(session, config)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plain = {"id_column": None, "group_column": None, "overwrite": True}
    with pytest.raises(OutputError, match="holds the input"):
        count(session, config_for(f"{tmp_path}/words/*.parquet", tmp_path, text_column="word", **plain))
    with pytest.raises(OutputError, match="holds the input"):
        encode(session, config_for(f"{tmp_path}/shards/*.parquet", tmp_path, text_column="id", **plain))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_changed_input_is_noticed(session, tmp_path):
    rows = corpus_rows(2)
    data = write_corpus(tmp_path / "data", rows)
    config = config_for(data, tmp_path)
    run_stages(session, config)
    write_corpus(tmp_path / "data", [{**row, "lang": "de"} for row in rows])  # same text, other groups
    with pytest.raises(OutputError, match="made from other input"):
        count(session, config)
    with pytest.raises(OutputError, match="made from other input"):
        encode(session, config)


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_finished_output_that_lost_a_file_is_mended(session, done, tmp_path, damage):
    base, output, _ = done
    shutil.copytree(output, tmp_path / "copy")
    config = load_config(None, {**base.model_dump(mode="json", exclude={"output"}), "output": str(tmp_path / "copy")})
    assert all(report.skipped for report in run_stages(None, config))
    for path in [
        *tmp_path.glob("copy/words/part-*"),
        *tmp_path.glob("copy/*/shard-*"),
        tmp_path / "copy/tokenizer/tokenizer.json",
    ]:
        path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:-1])
    assert not any(report.skipped for report in run_stages(session, config))
    assert contents(tmp_path / "copy") == contents(output)


def test_a_changed_shard_is_never_decoded(session, done, tmp_path):
    base, output, _ = done
    shutil.copytree(output / "shards", tmp_path / "shards")
    path = next((tmp_path / "shards").glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="it was changed"):
        list(decoded_documents(str(tmp_path / "shards"), shardpiece.load(base.tokenizer_path)))


def test_a_place_taken_by_something_else_is_left_alone(session, corpus, tmp_path):
    for name in ("words", "tokenizer", "shards"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("precious")
    config = config_for(corpus, tmp_path, overwrite=True)
    with pytest.raises(OutputError, match=r"not empty and not a word table \(it holds thesis.txt\)"):
        count(session, config)
    assert (tmp_path / "words" / "thesis.txt").read_text() == "precious"


def test_a_restart_keeps_finished_shards(session, corpus, tmp_path, capfd):
    rows = [{**row, "text": " ".join(f"{i * k:x}" for k in range(3000))} for i, row in enumerate(corpus_rows(20))]
    big = write_corpus(tmp_path / "big", rows, row_group_size=40)
    config = config_for(big, tmp_path / "out")
    run_stages(session, config)
    shards = tmp_path / "out" / "shards"
    before = {path.name: path.read_bytes() for path in shards.iterdir() if path.is_file()}
    names = sorted(name for name in before if name.endswith(".parquet"))
    assert len(names) > 2
    kept = (shards / names[0]).stat().st_mtime_ns
    # As after a kill: no manifest, one shard never written, one damaged.
    interrupt(shards)
    (shards / names[1]).unlink()
    (shards / names[2]).write_bytes(b"half")
    capfd.readouterr()
    encode(session, config)
    assert {path.name: path.read_bytes() for path in shards.iterdir() if path.is_file()} == before
    assert (shards / names[0]).stat().st_mtime_ns == kept
    assert f"{len(names) - 2} of {len(names)} shards were finished by an earlier run" in capfd.readouterr().err


def test_an_unfinished_run_of_another_plan_is_cleared(session, corpus, tmp_path):
    config = config_for(corpus, tmp_path)
    run_stages(session, config)
    interrupt(tmp_path / "shards")
    (tmp_path / "shards" / "shard-00077.parquet").write_bytes(b"of a longer plan")
    (tmp_path / "shards" / "shard-00000.parquet.0123456789ab.tmp").write_bytes(b"of a killed task")
    other = config_for(corpus, tmp_path, encode__append_eos=True)
    with pytest.raises(OutputError, match="unfinished run"):
        encode(session, other)
    encode(session, config_for(corpus, tmp_path, encode__append_eos=True, overwrite=True))
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    listed = {file["name"] for shard in manifest["shards"] for file in shard["files"]}
    assert {path.name for path in (tmp_path / "shards").glob("shard-*")} == listed
    assert manifest["around"]["after"]


def test_invalid_utf8_is_counted_or_refused(session, tmp_path):
    table = pa.table({"text": pa.array([b"good", b"bad \xff", None, b"", b"\xe6\x97"], pa.binary())})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "a.parquet", row_group_size=2)
    plain = {"id_column": None, "group_column": None, "train__vocab_size": 257}
    config = config_for(tmp_path / "data", tmp_path / "out", **plain)
    run_stages(session, config)
    manifest = json.loads((tmp_path / "out" / "shards" / "manifest.json").read_text())
    assert manifest["totals"]["replaced_documents"] == 2
    texts = [
        raw.decode() for _, _, raw in decoded_documents(config.shards_path, shardpiece.load(config.tokenizer_path))
    ]
    assert texts == ["good", "bad \ufffd", "", "", "\ufffd"]
    strict = config_for(tmp_path / "data", tmp_path / "strict", invalid_utf8="error", **plain)
    with pytest.raises(DataError, match=r"a\.parquet, row 1: invalid UTF-8 at byte 4"):
        count(session, strict)
    assert not (tmp_path / "strict" / "words" / "words.json").exists()


def test_a_pattern_that_reads_ahead_for_nothing_names_the_document(tmp_path, monkeypatch):
    write_corpus(tmp_path / "data", [{"id": "0", "text": "fine"}, {"id": "1", "text": "a" * 5000}], files=1)
    monkeypatch.setattr("shardpiece.text.splitter.WORK_PER_DOCUMENT", 1000)
    splits = plan_input(list_files([str(tmp_path / "data")]), Columns("text")).splits
    pretokenizer = shardpiece.PreTokenizer(r"(?:a+a+)+b|a")

    def split_all():
        for batch, documents in read_documents(splits, Columns("text"), "replace"):
            with document_errors(batch):
                pretokenizer.split(documents)

    with pytest.raises(DataError, match=r"part-00000\.parquet, row 1: the pre-tokenizer pattern took too many"):
        split_all()


def test_damage_found_by_an_executor_arrives_as_one_line(session, tmp_path):
    rows = [{"id": str(i), "text": f"text {i} " * 50, "lang": "en"} for i in range(200)]
    path = write_corpus(tmp_path / "data", rows, files=1, row_group_size=200) / "part-00000.parquet"
    data = bytearray(path.read_bytes())
    data[4:3000] = bytes(2996)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"part-00000\.parquet: cannot be read as Parquet") as caught:
        count(session, config_for(tmp_path / "data", tmp_path / "out"))
    assert "\n" not in str(caught.value)


def test_shards_decode_only_with_their_tokenizer(session, done, corpus, tmp_path):
    config, _, _ = done
    other = config_for(corpus, tmp_path, train__words=config.words_path, train__vocab_size=300)
    train(other)
    with pytest.raises(FormatError, match="decode with the one that wrote the shards"):
        next(decoded_documents(config.shards_path, shardpiece.load(other.tokenizer_path)))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"encode__append_eos": True, "encode__eos_token": "<eos>"},
            "'<eos>' is not among the special tokens",
        ),
        ({"id_column": "key"}, "no column 'key'"),
        ({"train__words": "elsewhere"}, "train.words"),
        ({"pretokenizer": "gpt3"}, "did you mean 'gpt2'"),
    ],
)
def test_a_whole_run_finds_late_mistakes_first(corpus, tmp_path, overrides, message):
    with pytest.raises(ConfigError, match=message):
        run_all(config_for(corpus, tmp_path, **overrides))


def test_an_altered_word_table_is_refused(session, corpus, tmp_path):
    config = config_for(corpus, tmp_path)
    count(session, config)
    part = next((tmp_path / "words").glob("part-*.parquet"))
    table = pq.read_table(part)
    pq.write_table(table.set_column(2, "count", pa.array([1] * len(table))), part)
    with pytest.raises(FormatError, match="count again"):
        train(config)
    pq.write_table(table.slice(1), part)
    with pytest.raises(FormatError, match=r"words\.json says"):
        train(config)


def test_only_empty_documents(session, tmp_path):
    write_corpus(tmp_path / "data", [{"id": "0", "text": None}, {"id": "1", "text": ""}], files=1)
    config = config_for(tmp_path / "data", tmp_path / "out")
    assert count(session, config).figures["distinct words"] == 0
    with pytest.raises(TrainingError, match="the word table is empty"):
        train(config)


def test_any_text_engine_counts_and_encodes(session, corpus, tmp_path):
    """A normalizer and a sequence of steps, on executors: the table is a plain counter's, the shards hold what the
    tokenizer makes of each document."""
    config = config_for(
        corpus, tmp_path, pretokenizer=["digits", "bert"], normalizer=["nfkc", "lowercase"], train__vocab_size=350,
        encode__special_tokens_in_text="token",
    )  # fmt: skip
    run_stages(session, config)
    engine = shardpiece.TextEngine(*config.engine_to_count)
    table = shardpiece.WordTable.read(config.words_path)
    assert table.engine.fingerprint == engine.fingerprint
    expected = Counter()
    for row in input_rows(corpus):
        for piece in (row["text"] or "").split("<|endoftext|>"):
            expected.update(word.encode() for word in engine.split_text(piece))
    assert table.to_counter() == expected
    tokenizer = shardpiece.load(config.tokenizer_path)
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    assert manifest["engine"] == tokenizer.engine.fingerprint == engine.fingerprint
    assert manifest["settings"]["special_tokens_in_text"] == "token"
    eos = tokenizer.special_id("<|endoftext|>")
    rows = [row for shard in manifest["shards"] for file in shard["files"]
            for row in pq.read_table(tmp_path / "shards" / file["name"]).to_pylist()]  # fmt: skip
    for row, source in zip(rows, input_rows(corpus), strict=True):
        text = source["text"] or ""
        assert row["tokens"] == tokenizer.encode(text, "token")
        assert row["tokens"].count(eos) == text.count("<|endoftext|>")


def test_a_special_token_in_text_is_an_error_where_asked(session, done, tmp_path):
    output = done[1]
    place = tmp_path / "spelled.parquet"
    pq.write_table(pa.table({"text": ["fine", None, "x <|endoftext|>"], "id": ["a", "b", "c"]}), place)
    wrong = load_config(None, {
        "input": [str(place)], "encode.tokenizer": str(output / "tokenizer"), "encode.output": str(tmp_path / "shards"),
        "encode.special_tokens_in_text": "error",
    })  # fmt: skip
    with pytest.raises(DataError, match=r"spelled.parquet, row 2: the text spells the special token '<\|endoftext\|>'"):
        encode(session, wrong)
    assert not (tmp_path / "shards" / "manifest.json").exists()


def test_a_normalizer_that_tokenizer_json_cannot_hold_is_found_before_the_run(corpus, tmp_path):
    config = config_for(corpus, tmp_path, normalizer={"type": "sentencepiece"})
    with pytest.raises(FormatError, match="reference: huggingface"):
        run_all(config)
    assert not (tmp_path / "words").exists()


def test_a_text_engine_other_than_the_tables_or_the_tokenizers_is_an_error(session, done, corpus, tmp_path):
    output = done[1]
    common = {"input": [str(corpus)], "output": str(tmp_path), "train.words": str(output / "words")}
    with pytest.raises(
        ConfigError, match=r"the word table .*words has PreTokenizer\('cl100k_base'\), and the settings say"
    ):
        train(load_config(None, {**common, "pretokenizer": "gpt2"}))
    encoding = {"input": [str(corpus)], "output": str(tmp_path), "encode.tokenizer": str(output / "tokenizer")}
    with pytest.raises(ConfigError, match=r"the tokenizer .*tokenizer has PreTokenizer.*nfc"):
        encode(session, load_config(None, {**encoding, "normalizer": "nfc"}))


def test_a_template_and_the_end_of_text_go_around_every_document(session, done, corpus, tmp_path):
    base, output, _ = done
    trained = shardpiece.load(base.tokenizer_path)
    eos = trained.special_id("<|endoftext|>")
    around = replace(trained, template=Template((eos, 65), (66,)))
    artifact.save(around, str(tmp_path / "tokenizer"))
    settings = {
        "encode__tokenizer": str(tmp_path / "tokenizer"), "encode__add_special_tokens": True, "encode__append_eos": True,
        "encode__warm_words": f"{output}/words", "encode__cache_bytes": "1MiB",
    }  # fmt: skip
    encode(session, config_for(corpus, tmp_path, **settings))
    rows = [row for path in sorted((tmp_path / "shards").glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    texts = [row["text"] or "" for row in input_rows(corpus)]
    assert [row["tokens"] for row in rows] == [[eos, 65, *trained.encode(text), 66, eos] for text in texts]
    tokenizer = shardpiece.load(str(tmp_path / "tokenizer"))
    assert [raw.decode() for *_, raw in decoded_documents(str(tmp_path / "shards"), tokenizer)] == texts
    manifest = json.loads((tmp_path / "shards" / "manifest.json").read_text())
    assert manifest["around"] == {"before": [eos, 65], "after": [66, eos]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encode__add_special_tokens": True}, "nothing that it puts around a text"),
        ({"encode__sampling": {"alpha": 0.1}}, "alpha is for Unigram models"),
        ({"encode__warm_words": "/nowhere"}, "no word table here"),
    ],
)
def test_what_the_tokenizer_has_no_use_for_is_said_before_spark_starts(done, corpus, tmp_path, settings, message):
    config = config_for(corpus, tmp_path, encode__tokenizer=done[0].tokenizer_path, **settings)
    with pytest.raises(ShardpieceError, match=message):
        encode(lambda: pytest.fail("Spark was started"), config)
