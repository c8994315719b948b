"""Normalizers against Hugging Face's, on every code point, on adversarial text and on corpora; settings and specs."""

import hashlib
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer
from tokenizers import normalizers as peers

from shardpiece.errors import ConfigError, DocumentError, FormatError, ShardpieceWarning
from shardpiece.text import splitter, user_patterns
from shardpiece.text.documents import Documents
from shardpiece.text.normalization import frozen_data
from shardpiece.text.normalization import settings as normal_settings
from shardpiece.text.normalizers import NORMALIZERS, Normalizer, normalizer
from shardpiece.tokenizer.formats.huggingface_normalizers import huggingface_setting
from tests.conftest import ROOT, TEXTS

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]

# Planes 0 and 1 but private use, the tags of plane 14, and every 101st of the rest.
ASSIGNED = [c for c in CHARACTERS if c < "\ue000" or "\uf900" <= c < "\U00020000" or "\U000e0000" <= c < "\U000e0200"]
ASSIGNED += CHARACTERS[::101]

BERT_OPTIONS = [
    {"clean_text": c, "handle_chinese_chars": h, "strip_accents": s, "lowercase": lower}
    for c in (True, False)
    for h in (True, False)
    for s in (None, True, False)
    for lower in (True, False)
]
PEERS = {
    "nfc": peers.NFC(),
    "nfd": peers.NFD(),
    "nfkc": peers.NFKC(),
    "nfkd": peers.NFKD(),
    "lowercase": peers.Lowercase(),
    "strip_accents": peers.StripAccents(),
    "nmt": peers.Nmt(),
    "strip": peers.Strip(),
    "bert": peers.BertNormalizer(),
    "collapse_spaces": peers.Replace(Regex(" {2,}"), " "),
}
MORE = [
    ({"type": "strip", "left": True, "right": False}, peers.Strip(True, False)),
    ({"type": "strip", "left": False, "right": True}, peers.Strip(False, True)),
    ({"type": "strip", "left": False, "right": False}, peers.Strip(False, False)),
    ({"type": "prepend", "text": "▁é"}, peers.Prepend("▁é")),
    ({"type": "replace", "literal": " ", "content": "▁"}, peers.Replace(" ", "▁")),
    ({"type": "replace", "literal": "aa", "content": ""}, peers.Replace("aa", "")),
    ({"type": "replace", "literal": "é\u0301", "content": r"\1$0aa"}, peers.Replace("é\u0301", r"\1$0aa")),
    ({"type": "replace", "pattern": r"\s+", "content": " "}, peers.Replace(Regex(r"\s+"), " ")),
    ({"type": "replace", "pattern": r" {2,}", "content": "▁"}, peers.Replace(Regex(r" {2,}"), "▁")),
    (
        {"type": "replace", "pattern": r"[b-fé]+|aa|\p{N}{1,2}", "content": "éé"},
        peers.Replace(Regex(r"[b-fé]+|aa|\p{N}{1,2}"), "éé"),
    ),
    ({"type": "replace", "pattern": r"\s+(?!\S)|a(?=b)", "content": ""}, peers.Replace(Regex(r"\s+(?!\S)|a(?=b)"), "")),
    ({"type": "replace", "pattern": r"(a)|x*", "content": r"\1$1"}, peers.Replace(Regex(r"(a)|x*"), r"\1$1")),
    ({"type": "replace", "pattern": r"(?=b)", "content": "-"}, peers.Replace(Regex(r"(?=b)"), "-")),
    (["nfkd", "strip_accents", "lowercase"], peers.Sequence([peers.NFKD(), peers.StripAccents(), peers.Lowercase()])),
    *(({"type": "bert", **options}, peers.BertNormalizer(**options)) for options in BERT_OPTIONS),
]

adversarial = st.text(
    st.one_of(
        st.sampled_from(
            " \t\n\r\x00\x01\x7faabbxxEÉéİΣςſßǅﬁ½中漢\u0301\u0323\u0345\u0334\u3099カｶﾞ\u1e9b각가\u1100\u1161\u11a8"
        ),
        st.sampled_from(
            "\u200b\u200d\u200e\u200f\u2028\u00a0\u3000\u0085\ufeff\ufffd\u0958\u0f73\u0344\u2126\ufb2c😀א\u05b0\u0627"
        ),
        st.integers(0x300, 0x36F).map(chr),
        st.integers(0x1100, 0x11FF).map(chr),
        st.characters(codec="utf-8"),
    ),
    max_size=40,
)


def results(mine: Normalizer, texts: list[str], batch: int = 256) -> list[str]:
    found = []
    for i in range(0, len(texts), batch):
        part = texts[i : i + batch]
        documents = mine.normalize(Documents.from_strings(part))
        assert len(documents) == len(part)
        raw, offsets = documents.data.tobytes(), documents.offsets.tolist()
        found += [raw[a:b].decode() for a, b in pairwise(offsets)]
    return found


def assert_same(mine: Normalizer, peer, texts: list[str]) -> None:
    call = peer.normalize_str
    wrong = [(t, ours) for t, ours in zip(texts, results(mine, texts), strict=True) if ours != call(t)]
    assert wrong[:5] == []


@pytest.mark.parametrize("name", PEERS)
def test_every_code_point(name):
    blocks = ["a".join(CHARACTERS[i : i + 64]) for i in range(0, len(CHARACTERS), 64)]
    assert_same(normalizer(name), PEERS[name], blocks)


@pytest.mark.parametrize("name", PEERS)
def test_assigned_code_points_alone(name):
    assert_same(normalizer(name), PEERS[name], ASSIGNED)


@pytest.mark.parametrize("name", ["nfc", "nfd", "nfkc", "nfkd", "bert"])
def test_code_points_between_letters_and_marks(name):
    # Many in one text: what is unknown must not let its neighbours interact.
    texts = ["".join(f"\u0323A{c}\u0301\u0323b" for c in ASSIGNED[i : i + 32]) for i in range(0, len(ASSIGNED), 32)]
    assert_same(normalizer(name), PEERS[name], texts)


@pytest.mark.parametrize(
    "options", BERT_OPTIONS, ids=lambda options: "".join("NFT"[v is not None and 1 + v] for v in options.values())
)
def test_bert_options(options):
    texts = [f"\u0323A{c}\u0301\u0323b" for c in ASSIGNED[::6]]
    assert_same(normalizer({"type": "bert", **options}), peers.BertNormalizer(**options), texts)


@pytest.mark.parametrize("name", PEERS)
@settings(max_examples=150, deadline=None)
@given(texts=st.lists(adversarial, max_size=4))
def test_adversarial_text(name, texts):
    assert_same(normalizer(name), PEERS[name], texts)


@pytest.mark.parametrize(("setting", "peer"), MORE, ids=lambda value: str(value)[:60])
@settings(max_examples=30, deadline=None)
@given(texts=st.lists(adversarial, max_size=4))
def test_parameters_and_sequences(setting, peer, texts):
    assert_same(normalizer(setting), peer, texts)


@pytest.mark.parametrize("name", PEERS)
def test_corpora(name, shared):
    for group in ("books", "web_multilingual", "parallel", "code"):
        path = sorted((shared / "corpus" / group).glob("*.parquet"))[-1]
        column = pq.read_table(path, columns=["text"])["text"].drop_null()
        texts = column.take(list(range(0, len(column), max(1, len(column) // 12)))).to_pylist()
        assert_same(normalizer(name), PEERS[name], [text[:20_000] for text in texts])


@pytest.mark.parametrize("name", NORMALIZERS)
def test_batches_of_all_kinds(name):
    mine = normalizer(name)
    empty = mine.normalize(Documents.from_strings([]))
    assert len(empty) == 0
    assert empty.size == 0
    documents = Documents(*_arrays(TEXTS), nulls=1, empty=1, replaced=7)
    out = mine.normalize(documents)
    assert (out.nulls, out.empty, out.replaced) == (1, 1, 7)
    assert out.data.dtype == np.uint8
    assert out.offsets.dtype == np.int64
    assert not out.data.flags.writeable
    assert not out.offsets.flags.writeable
    assert [out.text(d) for d in range(len(out))] == [mine.normalize_text(text or "") for text in TEXTS]
    # A batch that is a slice of a longer one.
    part = Documents(documents.data, documents.offsets[2:5])
    assert [mine.normalize(part).text(d) for d in range(2)] == [out.text(2), out.text(3)]


def _arrays(texts):
    documents = Documents.from_strings([text or "" for text in texts])
    return documents.data, documents.offsets


@pytest.mark.parametrize("name", ["nfc", "nfd", "nfkc", "bert", "nmt_nfkc", "strip_accents"])
def test_a_megabyte_of_marks(name):
    marks = "\u0301\u0323\u0345\u0334" * 125_000
    got = normalizer(name).normalize_text("e" + marks + "x")
    if name in PEERS:
        assert got == PEERS[name].normalize_str("e" + marks + "x")


def test_what_does_not_change_is_not_copied():
    documents = Documents.from_strings(["plain text", "déjà vu 漢字"])
    for name in ("nfc", "lowercase", "nmt", "strip_accents", "nfkc"):
        assert normalizer(name).normalize(documents) is documents


def test_frozen_data_is_what_the_tables_number_says():
    # When a file changes a result, raise normal_settings.TABLES and put the new digests here.
    data = Path(frozen_data.__file__).parents[1] / "data"
    digests = {
        name: hashlib.sha256((data / name).read_bytes()).hexdigest()[:16]
        for name in ("decompositions.txt", "normalization_sets.txt")
    }
    assert normal_settings.TABLES == 1
    assert digests == DIGESTS


DIGESTS = {"decompositions.txt": "69743aac8943a207", "normalization_sets.txt": "b771cbb620a276a0"}


def test_no_unicode_data_of_the_running_python():
    text = ROOT / "lib" / "shardpiece" / "text"
    paths = [text / "normalizers.py", *(text / "normalization").glob("*.py")]
    assert len(paths) > 8
    for path in paths:
        source = path.read_text()
        assert not regex.search(r"\bunicodedata\b|\.(lower|upper|casefold|isspace|isalpha|strip)\(\)", source), path


def test_a_pattern_that_would_hang_is_stopped(monkeypatch):
    monkeypatch.setattr(user_patterns, "TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(user_patterns, "TIMEOUT_SECONDS_PER_MB", 0.0)
    mine = normalizer({"type": "replace", "pattern": "(?<!c)(?:a+a+)+b", "content": ""})
    with pytest.raises(DocumentError, match="ran for more than") as caught:
        mine.normalize(Documents.from_strings(["fine", "a" * 5000]))
    assert caught.value.index == 1
    monkeypatch.setattr(splitter, "WORK_PER_DOCUMENT", 1000)
    mine = normalizer({"type": "replace", "pattern": "(?:a+a+)+b", "content": ""})
    with pytest.raises(DocumentError, match="the normalizer's pattern took too many steps") as caught:
        mine.normalize(Documents.from_strings(["fine", "a" * 5000]))
    assert caught.value.index == 1


def test_no_normalizer():
    assert normalizer(None) is normalizer("none") is normalizer([]) is normalizer([None, "none"]) is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("nmt_nfck", "did you mean 'nmt_nfkc'"),
        ("", "is not one of"),
        (3, "expected a name"),
        ({}, "type None is not one of"),
        ({"type": "brt"}, "did you mean 'bert'"),
        ({"type": ["bert"]}, "is not one of"),
        ({"type": "bert", "lower_case": True}, "did you mean 'lowercase'"),
        ({"type": "bert", "lowercase": 1}, "lowercase must be bool"),
        ({"type": "bert", "lowercase": None}, "lowercase must be bool"),
        ({"type": "nfc", "form": "c"}, "there are no parameters"),
        ({"type": "prepend"}, "'text' is missing"),
        ({"type": "prepend", "text": "\ud800"}, "surrogate"),
        ({"type": "replace", "content": ""}, "either 'pattern'"),
        ({"type": "replace", "pattern": "a", "literal": "b", "content": ""}, "either 'pattern'"),
        ({"type": "replace", "literal": "", "content": ""}, "literal is empty"),
        ({"type": "replace", "pattern": "(", "content": ""}, "not a regular expression"),
        ({"type": "replace", "pattern": "(?r)a", "content": ""}, "searches backwards"),
        ({"type": "charsmap"}, "give one of"),
        ({"type": "charsmap", "rule": "nmt_nfck"}, "did you mean 'nmt_nfkc'"),
        ({"type": "charsmap", "table": "*"}, "base64"),
        ({"type": "charsmap", "table": "AAAA"}, "trie"),
        ({"type": "charsmap", "mapping": {"": "a"}}, "empty source"),
        ({"type": "charsmap", "mapping": {"a": 1}}, "texts"),
        ({"type": "charsmap", "rule": "nfkc", "reference": "hugging_face"}, "did you mean 'huggingface'"),
        ({"type": "sentencepiece", "user_defined_symbols": [""]}, "none of them empty"),
        ({"type": "sentencepiece", "add_dummy_prefix": "yes"}, "must be bool"),
        ({"type": "sequence", "normalizers": []}, "'steps'"),
        (["nfc", "lowercas"], "did you mean 'lowercase'"),
    ],
)
def test_wrong_settings(setting, message):
    with pytest.raises(ConfigError, match=message):
        normalizer(setting)


SETTINGS = [
    *NORMALIZERS,
    {"type": "bert", "strip_accents": None, "lowercase": False},
    {"type": "prepend", "text": "▁"},
    {"type": "replace", "literal": "a", "content": "b"},
    {"type": "replace", "pattern": "[ab]", "content": "c"},
    {"type": "charsmap", "mapping": {"a": "bc"}, "reference": "huggingface"},
    {"type": "sentencepiece", "mapping": {}, "user_defined_symbols": ["<x>"]},
    ["nfd", "strip_accents", {"type": "strip", "left": False}],
    {"type": "sequence", "steps": ["nfd", "lowercase"]},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_stored_specs(setting):
    mine = normalizer(setting)
    spec = json.loads(json.dumps(mine.spec))
    again = Normalizer.from_spec(spec)
    assert again.spec == spec
    assert again.fingerprint == mine.fingerprint
    assert len(mine.fingerprint) == 64
    assert "type" in spec
    text = "  Ａé漢 e\u0301 <x> ab\u0001  "
    assert again.normalize_text(text) == mine.normalize_text(text)
    assert repr(mine).startswith("Normalizer(")
    for key in [*spec, None]:
        damaged = {k: v for k, v in spec.items() if k != key} if key else spec | {"more": 1}
        with pytest.raises(FormatError):
            Normalizer.from_spec(damaged)
        if key:
            with pytest.raises(FormatError):
                Normalizer.from_spec(spec | {key: 17})


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        {},
        {"type": "nfc", "tables": 2},
        {"type": "sequence", "steps": []},
        {"type": "sequence", "steps": [{"type": "sequence", "steps": []}, {}]},
        {"type": "charsmap", "reference": "other", "table": ""},
        {"type": "charsmap", "reference": "sentencepiece", "table": "AAAA"},
        {"type": "replace", "literal": "", "content": ""},
        {"type": "replace", "pattern": "(", "content": "", "engine": "regex"},
        {"type": "prepend", "text": "\udc00"},
    ],
)
def test_damaged_specs(spec):
    with pytest.raises(FormatError):
        Normalizer.from_spec(spec)


def test_a_pattern_of_another_regex_version_is_said():
    spec = normalizer({"type": "replace", "pattern": "a", "content": "b"}).spec | {"engine": "regex 1"}
    with pytest.warns(ShardpieceWarning, match="replaced by regex 1"):
        assert Normalizer.from_spec(spec).spec == spec


def test_fingerprints_differ_and_stay():
    prints = {normalizer(setting).fingerprint for setting in SETTINGS}
    assert len(prints) == len(SETTINGS)
    assert normalizer("bert").fingerprint == normalizer({"type": "bert", "strip_accents": True}).fingerprint


@pytest.mark.parametrize(
    "peer",
    [
        *(PEERS[name] for name in PEERS),
        peers.Prepend("▁"),
        peers.Replace("a", "b"),
        peers.Replace(Regex(r"^\s*[^a]|b$"), "-"),
        peers.Sequence([]),
        peers.Sequence([peers.NFKD(), peers.Sequence([peers.Strip(False, True)])]),
    ],
    ids=lambda peer: repr(peer)[:60],
)
def test_settings_of_tokenizer_json(peer):
    setting = huggingface_setting(json.loads(peer.__getstate__()))
    texts = ["  Ａé漢\n e\u0301 <x> ab\u0001  ", "a\nb\nab", ""]
    mine = normalizer(setting)
    assert [mine.normalize_text(t) if mine else t for t in texts] == [peer.normalize_str(t) for t in texts]


@pytest.mark.parametrize(
    "config",
    [{}, [], {"type": "ByteLevel"}, {"type": "Strip"}, {"type": "Replace", "pattern": {"Regex": r"\X"}, "content": ""}],
)
def test_settings_of_tokenizer_json_that_cannot_be_had(config):
    with pytest.raises(ConfigError):
        huggingface_setting(config)


def test_published_tokenizer_json(shared):
    for path in sorted((shared / "vocabs").glob("*/tokenizer.json")):
        mine = normalizer(huggingface_setting(json.loads(path.read_text())["normalizer"]))
        peer = Tokenizer.from_file(str(path)).normalizer
        for text in filter(None, TEXTS):
            assert (mine.normalize_text(text) if mine else text) == (peer.normalize_str(text) if peer else text)
