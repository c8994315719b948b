"""The configuration: keys, overrides, and messages that name the key."""

import pytest
import yaml

from shardpiece.config import JobConfig, load_config, parse_setting
from shardpiece.errors import ConfigError
from shardpiece.resources import conf_file
from tests.conftest import ROOT


def write(tmp_path, text):
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return str(path)


def test_defaults_and_overrides(tmp_path):
    path = write(tmp_path, "input: data/*.parquet\noutput: out/\ntrain: {vocab_size: 1000}\ncount: {task_size: 32MB}\n")
    config = load_config(path, {"train.vocab_size": 2000, "spark.spark.executor.memory": "4g"})
    assert config.input == ["data/*.parquet"]
    assert config.train.vocab_size == 2000
    assert config.train.special_tokens == ["<|endoftext|>"]
    assert config.count.task_size == 32_000_000
    assert config.spark == {"spark.executor.memory": "4g"}
    assert (config.words_path, config.tokenizer_path, config.shards_path) == (
        "out/words",
        "out/tokenizer",
        "out/shards",
    )
    assert load_config(path, {"count.output": "w"}).words_path == "w"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vocab_size: 5", r"job\.yaml: vocab_size: unknown key \(did you mean train\.vocab_size\?\)"),
        ("zzz: 5", r"job\.yaml: zzz: unknown key \(known here: master, input"),
        (
            "encode: {sampling: {alpho: 0.2}}",
            r"encode\.sampling\.alpho: unknown key \(did you mean encode\.sampling\.alpha\?\)",
        ),
        ("train: {vocabsize: 5}", r"train\.vocabsize: unknown key \(did you mean train\.vocab_size\?\)"),
        ("train: {vocab_size: many}", r"train\.vocab_size: .*integer.* \(given: 'many'\)"),
        ("train: {vocab_size: 12}", r"train: vocab_size 12 .*256"),
        ("train: {tie_break: luck}", r"train\.tie_break: .*lexicographic"),
        (
            "encode: {format: bin}\nencode: {format: parquet}",
            r"job\.yaml: not valid YAML \(encode is there twice, in lines 1 and 2\)",
        ),
        ("encode: {metadata_columns: [a, a]}", r"metadata_columns: 'a' is listed twice"),
        ("encode: {format: tar}", r"encode: format: 'tar' is none of parquet, "),
        ("count: {memory_per_task: 3}", r"count\.memory_per_task"),
        ("invalid_utf8: ignore", "invalid_utf8"),
        ("- a\n- b", "expected keys and values"),
        ("a: [", "not valid YAML"),
        ("train: 7", r"train: .*\(given: 7\)"),
        ("train: {vocab_size: 256}", r"train: vocab_size 256 is too small: 256 bytes and 1 special tokens need 257"),
        ("train: {special_tokens: [a]}", r"train: special_tokens: 'a' is a single byte"),
        ("train: {special_tokens: ['']}", r"train: special_tokens: '' is a single byte or empty"),
        ("train: {special_tokens: [<s>, <s>]}", r"train: special_tokens: '<s>' is listed twice"),
        ('train: {special_tokens: ["\\ud800x"]}', r"not valid"),
    ],
)
def test_mistakes_name_file_and_key(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, text))


def test_a_missing_file_is_named():
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_config("nowhere.yaml")


def test_settings_are_read_as_yaml():
    assert parse_setting("train.vocab_size=500") == ("train.vocab_size", 500)
    assert parse_setting("input=[a, b]") == ("input", ["a", "b"])
    assert parse_setting(r"pretokenizer=\p{L}+|[^\p{L}]+") == ("pretokenizer", r"\p{L}+|[^\p{L}]+")
    for bad in ("novalue", "=x", "a b=c"):
        with pytest.raises(ConfigError, match="KEY=VALUE"):
            parse_setting(bad)
    with pytest.raises(ConfigError, match="not a section"):
        load_config(None, {"output": "x", "output.deeper": 1})


@pytest.mark.parametrize("name", ["quickstart.yaml", "pretrain.yaml"])
def test_the_shipped_configurations_are_valid_and_complete(name):
    config = load_config(str(ROOT / "conf" / name))
    assert config.input
    if name == "pretrain.yaml":
        # The commented template shows every key.
        content = yaml.safe_load((ROOT / "conf" / name).read_text())
        assert set(content) == set(JobConfig.model_fields)
        for section in ("count", "train", "encode", "evaluate", "sweep"):
            assert set(content[section]) == set(JobConfig.model_fields[section].annotation.model_fields)


def test_log4j_properties_are_found():
    assert conf_file("log4j2.properties") == ROOT / "conf" / "log4j2.properties"
    assert conf_file("absent") is None
