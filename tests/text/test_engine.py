"""The text engine: normalizer and pre-tokenizer as one object with one identity."""

import json

import pytest

import shardpiece
from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from tests.conftest import TEXTS


def test_normalizes_before_it_splits():
    engine = TextEngine(["digits", "gpt2"], ["nfkc", "lowercase"])
    assert engine.split_text("ＡＢ１ C") == ["ab", "1", " c"]
    assert TextEngine("gpt2").split_text("ＡＢ１ C") == ["ＡＢ", "１", " C"]
    assert TextEngine.of("gpt2").normalizer is None
    assert TextEngine.of(engine) is engine


def test_the_fingerprint_is_of_both_parts():
    base = TextEngine("gpt2").fingerprint
    assert TextEngine("r50k_base", "none").fingerprint == base
    different = [TextEngine("gpt2", "nfc"), TextEngine("gpt2", ["nfc", "lowercase"]), TextEngine("llama3", "nfc")]
    assert len({base, *(engine.fingerprint for engine in different)}) == 4


@pytest.mark.parametrize("normalizing", [None, "bert", "nmt_nfkc", ["nfd", "strip_accents"]])
def test_a_stored_engine_is_the_same(normalizing):
    engine = TextEngine("bert", normalizing)
    again = TextEngine.from_spec(json.loads(json.dumps(engine.spec)))
    assert again.fingerprint == engine.fingerprint
    documents = Documents.from_strings([text or "" for text in TEXTS])
    assert again.split(documents).to_list() == engine.split(documents).to_list()


@pytest.mark.parametrize("key", ["normalizer", "pretokenizer"])
def test_a_damaged_engine_is_refused(key):
    spec = TextEngine("gpt2", "nfc").spec
    with pytest.raises(FormatError, match="damaged"):
        TextEngine.from_spec({**spec, key: {"type": "x"}})
    del spec[key]
    with pytest.raises(FormatError, match="damaged"):
        TextEngine.from_spec(spec)


def test_a_table_and_a_tokenizer_carry_their_engine():
    engine = TextEngine("gpt2", "lowercase")
    words = shardpiece.WordTable.from_texts(["Low LOW low"], engine)
    assert words.to_counter() == {b"low": 1, b" low": 2}
    assert words.engine.fingerprint == engine.fingerprint
    tokenizer = shardpiece.train_bpe(words, 262)
    assert tokenizer.decode(tokenizer.encode("LOW")) == "low"
    with pytest.raises(ConfigError, match=r"counted with Normalizer\(lowercase\), PreTokenizer\('gpt2'\), not with"):
        shardpiece.train_bpe(words, 262, engine="gpt2")
    assert words.fingerprint != shardpiece.WordTable.from_texts(["low low low"], "gpt2").fingerprint


def test_places_of_special_tokens_are_not_counted():
    words = shardpiece.WordTable.from_texts(["ab<s>cd", "<s>"], "metaspace_first", special_tokens=["<s>"])
    assert words.to_counter() == {"▁ab".encode(): 1, b"cd": 1}


def test_settings_of_another_engine_are_an_error():
    engine = TextEngine("gpt2", "nfc")
    engine.check_setting({}, "the table")
    engine.check_setting({"pretokenizer": "r50k_base", "normalizer": ["nfc"]}, "the table")
    for given in ({"pretokenizer": "llama3"}, {"normalizer": None}):
        with pytest.raises(
            ConfigError, match=r"the table has Normalizer\(nfc\), PreTokenizer\('gpt2'\), and the settings"
        ):
            engine.check_setting(given, "the table")
