"""The evaluate stage on Spark and on a word table, and the sweep."""

import json

import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.cli import main
from shardpiece.config import load_config
from shardpiece.errors import ConfigError, OutputError
from shardpiece.evaluation.schema import Report, Sweep
from shardpiece.pipeline.count import count
from shardpiece.pipeline.evaluate.stage import evaluate
from shardpiece.pipeline.sweep import sweep
from shardpiece.pipeline.train import train
from tests.commands import called
from tests.conftest import input_rows
from tests.evaluation import reference


@pytest.fixture(scope="module")
def made(session, corpus, tmp_path_factory):
    """A word table and a tokenizer trained from it."""
    output = tmp_path_factory.mktemp("evaluated")
    config = load_config(
        None, {"input": [str(corpus)], "output": str(output), "group_column": "lang", "train.vocab_size": 400}
    )
    count(session, config)
    train(config)
    return output


def config_of(made, output, corpus=None, **settings):
    given = {
        "output": str(output),
        "evaluate.tokenizers": [str(made / "tokenizer"), f"bytes={made / 'bytes'}"],
        **({} if corpus is None else {"input": [str(corpus)], "group_column": "lang", "id_column": "id"}),
    }
    return load_config(None, given | settings)


@pytest.fixture(scope="module")
def compared(session, corpus, made):
    shardpiece.save(shardpiece.train(shardpiece.WordTable.read(str(made / "words")), "byte"), str(made / "bytes"))
    settings = {"evaluate.parallel_column": "id", "evaluate.parallel_key": "([0-9]+)/.*", "evaluate.probes": ["RC0402"]}
    config = config_of(made, made / "compared", corpus, **settings)
    assert not evaluate(session, config).skipped
    assert evaluate(session, config).skipped
    return Report.model_validate_json((made / "compared" / "evaluation" / "metrics.json").read_text())


def test_the_stage_equals_the_reference(compared, corpus, made):
    tokenizer = shardpiece.load(str(made / "tokenizer"))
    expected = reference.measured(tokenizer, input_rows(corpus))
    own, other = compared.tokenizers
    assert other.name == "bytes"
    for group, found in expected.items():
        metrics = own.overall if group is None else own.groups[group]
        for name in ("documents", "bytes", "characters", "words", "tokens"):
            assert getattr(metrics, name) == found["sums"][name]
        assert metrics.round_trip_rate == 1
        assert metrics.distinct_tokens == len(found["tokens"])
    assert other.overall.tokens == other.overall.bytes
    assert other.costs["GPT-2 small"].attention_ratio == pytest.approx((other.overall.tokens / own.overall.tokens) ** 2)
    assert own.costs["GPT-2 small"].attention_ratio == 1
    assert own.fingerprint == tokenizer.fingerprint


def test_premiums_probes_samples_and_training_counts(compared):
    own, other = compared.tokenizers
    assert compared.parallel.pivot == "en"
    assert compared.parallel.groups["mul"].pairs == compared.parallel.texts == 20
    assert other.premiums["mul"] == compared.parallel.groups["mul"].byte_premium
    assert own.probes[0].text == "RC0402"
    assert {*own.probes[0].alone.ids} <= {*own.tokens}
    assert {sample.group for sample in compared.samples} == {"en", "mul"}
    assert set(compared.samples[0].tokens) == {own.name, "bytes"}
    # The table was counted from the same text, so nothing that was trained on is missing.
    assert all(one.training_count is not None for one in own.glitch.candidates)
    assert own.glitch.counts["rare"] == 0


def test_the_table_of_figures(compared, made):
    rows = pq.read_table(made / "compared" / "evaluation" / "metrics.parquet").to_pylist()
    assert list(rows[0]) == ["tokenizer", "group", "metric", "value"]
    found = {(row["tokenizer"], row["group"], row["metric"]): row["value"] for row in rows}
    assert len(found) == len(rows)
    assert found["bytes", None, "bytes_per_token"] == 1
    assert found["bytes", "mul", "premium"] == compared.tokenizers[1].premiums["mul"]


def test_a_word_table_needs_no_spark(compared, made):
    def no_session():
        raise AssertionError("Spark is not needed")

    evaluate(no_session, config_of(made, made / "on-words", **{"evaluate.words": str(made / "words")}))
    report = Report.model_validate_json((made / "on-words" / "evaluation" / "metrics.json").read_text())
    for on_words in report.tokenizers:
        assert on_words.overall.documents == 0
        assert on_words.overall.round_trip_rate is None
    # Counting leaves out what spells a special token, once in every group's copy of that text.
    assert compared.corpus.bytes - report.corpus.bytes == 20 * len("<|endoftext|>")
    assert [one.notes for one in report.tokenizers] == [[], []]


def test_mistakes(session, corpus, made, compared):
    with pytest.raises(ConfigError, match="no tokenizer to evaluate"):
        evaluate(session, config_of(made, made / "x", corpus, **{"evaluate.tokenizers": []}))
    with pytest.raises(ConfigError, match="nothing to evaluate on: pass --input"):
        evaluate(session, config_of(made, made / "x"))
    names = [f"a={made / 'bytes'}", f"a={made / 'tokenizer'}"]
    with pytest.raises(ConfigError, match="two tokenizers are named 'a'"):
        evaluate(session, config_of(made, made / "x", corpus, **{"evaluate.tokenizers": names}))
    with pytest.raises(ConfigError, match="evaluate reads files"):
        evaluate(session, config_of(made, made / "x", "table:corpus"))
    with pytest.raises(OutputError, match="made from other input or settings"):
        evaluate(session, config_of(made, made / "compared", corpus))
    with pytest.raises(ConfigError, match=r"evaluate.*no regular expression"):
        config_of(made, made / "x", corpus, **{"evaluate.parallel_key": "("})


def test_a_sweep_goes_on_where_it_was(made, monkeypatch):
    settings = {
        "sweep.words": str(made / "words"),
        "sweep.vocab_sizes": "300,400",
        "sweep.algorithms": ["bpe", "unigram", "byte"],
        "sweep.weights": {"as counted": None, "even": 0.0},
    }
    config = config_of(made, made / "swept", **settings)
    assert sweep(config, None).figures["cells"] == 6
    raw = (made / "swept" / "sweep" / "sweep.json").read_text()
    result = Sweep.model_validate_json(raw)
    assert [(cell.algorithm, cell.weights, cell.vocab_size) for cell in result.cells] == [
        ("bpe", "as counted", 300), ("bpe", "as counted", 400), ("bpe", "even", 300), ("bpe", "even", 400),
        ("byte", "as counted", 259), ("byte", "even", 259),
    ]  # fmt: skip
    assert [note.split(":")[1] for note in result.notes] == [" unigram, as counted", " unigram, even"]
    assert result.curves["bytes_per_token"]["byte, even"] == [(259, 1.0)]
    small, large = result.curves["bytes_per_token"]["bpe, as counted"]
    assert small[1] < large[1]
    for cell in result.cells:
        tokenizer = shardpiece.load(str(made / "swept" / "sweep" / cell.tokenizer))
        assert tokenizer.fingerprint == cell.fingerprint
        assert cell.parameters["GPT-2 small"] == 768 * tokenizer.vocab_size
    assert sweep(config, None).skipped
    # Stopped before its end: the cells that are there are neither trained nor measured again.
    (made / "swept" / "sweep" / "sweep.json").unlink()
    (made / "swept" / "sweep" / "_started.json").write_text(json.dumps({"writing": "a sweep", "key": result.key}))
    with monkeypatch.context() as patch:
        patch.setattr("shardpiece.pipeline.sweep.measure_table", None)
        sweep(config, None)
    again = Sweep.model_validate_json((made / "swept" / "sweep" / "sweep.json").read_text())
    assert [cell.overall for cell in again.cells] == [cell.overall for cell in result.cells]
    rows = pq.read_table(made / "swept" / "sweep" / "sweep.parquet").to_pylist()
    assert {row["cell"] for row in rows} == {cell.name for cell in result.cells}


def test_a_grid_of_which_nothing_can_be_trained(made):
    settings = {"sweep.words": str(made / "words"), "sweep.vocab_sizes": [300], "sweep.algorithms": ["unigram"]}
    with pytest.raises(ConfigError, match="nothing of the grid can be trained: .*unigram"):
        sweep(config_of(made, made / "untrained", **settings), None)


def test_the_commands(made, tmp_path):
    def command(*arguments: str):
        return called(lambda: main(list(arguments)))

    words, output = str(made / "words"), str(tmp_path / "out")
    done = command("evaluate", "--tokenizer", f"b={made / 'bytes'}", "--words", words, "--output", output)
    assert done.returncode == 0, done.stderr
    assert "b: bytes/token" in done.stdout
    swept = command(
        "sweep", "--words", words, "--vocab-sizes", "300", "--weights", "counted", "--weights", "{en: 3, mul: 1}",
        "--weights", "low=0.3", "--output", str(tmp_path / "sweep"),
    )  # fmt: skip
    assert swept.returncode == 0, swept.stderr
    result = Sweep.model_validate_json((tmp_path / "sweep" / "sweep.json").read_text())
    assert [cell.name for cell in result.cells] == [
        "bpe, as counted, 300", "bpe, en 3, mul 1, 300", "bpe, low, 300",
    ]  # fmt: skip
    for arguments, message in (
        (["sweep", "--words", words, "--weights", "a=b"], "expected counted, a number from 0 to 1"),
        (["sweep", "--words", words, "--algorithms", "bpe,magic", "--output", output], "'magic' is none of bpe"),
        (["evaluate", "--tokenizer", "x", "--set", "dry_run=true", "--output", output], "dry_run is for count"),
    ):
        refused = command(*arguments)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
