"""Charsmaps and SentencePiece's normalizer against sentencepiece and Hugging Face's Precompiled."""

import base64
import io
import json
import random
from functools import cache

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceNormalizer, SentencePieceProcessor, SentencePieceTrainer
from tokenizers import normalizers as peers

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.documents import Documents
from shardpiece.text.normalization.charsmap import Charsmap
from shardpiece.text.normalization.charsmap_rules import RULES, named_charsmap, named_rules
from shardpiece.text.normalizers import Normalizer, normalizer
from tests.text.test_normalizers import ASSIGNED, CHARACTERS, adversarial, assert_same, results

OPTIONS = [
    {"add_dummy_prefix": a, "remove_extra_whitespaces": r, "escape_whitespaces": e}
    for a in (True, False)
    for r in (True, False)
    for e in (True, False)
]


class Peer:
    """sentencepiece's normalizer with the call of Hugging Face's."""

    def __init__(self, **arguments):
        self.normalize_str = SentencePieceNormalizer(**arguments).normalize


@cache
def sources() -> list[str]:
    return list(named_rules("nmt_nfkc"))


# Sources of rules, whole and in parts, among marks, white space and graphemes that are short.
ruled = st.lists(
    st.one_of(
        st.integers(0, 200_000).map(lambda i: sources()[i * 7919 % len(sources())]),
        st.sampled_from(
            [" ", "  ", "\t", "\r\n", "\u3000", "▁", "\u200b", "\u200d", "\x01", "\x00", "a", "B", "\u0301"]
        ),
        st.sampled_from(
            "©®❤☺\u200d\u0301\u0302\u0915\u094d\u0958\u09bc\u0600\u0903각\u1100\u1161\u0ddf\u200c\u0344🇩\U000110bd"
        ),
        adversarial,
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("name", RULES)
def test_named_rules_are_sentencepieces(name):
    assert named_rules(name) == dict(SentencePieceNormalizer(rule_name=name).decompile())


def test_a_charsmap_spells_its_rules():
    charsmap = named_charsmap("nmt_nfkc")
    assert charsmap.mapping() == named_rules("nmt_nfkc")
    assert Charsmap.from_bytes(charsmap.to_bytes()) == charsmap
    assert Charsmap.from_base64(charsmap.to_base64()) == charsmap
    assert Charsmap.from_bytes(b"").mapping() == named_charsmap("identity").mapping() == {}
    assert Charsmap.from_mapping({}).to_bytes() == b""


@pytest.mark.parametrize("name", RULES)
def test_every_code_point_as_sentencepiece(name):
    blocks = ["a".join(CHARACTERS[i : i + 64]) for i in range(0, len(CHARACTERS), 64)]
    assert_same(normalizer({"type": "sentencepiece", "rule": name}), Peer(rule_name=name), blocks)
    plain = Peer(rule_name=name, add_dummy_prefix=False, remove_extra_whitespaces=False, escape_whitespaces=False)
    assert_same(normalizer({"type": "charsmap", "rule": name}), plain, blocks[:4000])


def test_every_source_as_sentencepiece():
    texts = [" ".join(sources()[i : i + 50]) for i in range(0, len(sources()), 50)]
    assert_same(normalizer({"type": "sentencepiece"}), Peer(rule_name="nmt_nfkc"), texts)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_white_space_options(options):
    mine, peer = normalizer({"type": "sentencepiece", **options}), Peer(rule_name="nmt_nfkc", **options)
    assert_same(mine, peer, ASSIGNED[::7])

    @settings(max_examples=60, deadline=None)
    @given(texts=st.lists(ruled, max_size=4))
    def compare(texts):
        assert_same(mine, peer, texts)

    compare()


def test_a_suffix_in_place_of_the_prefix():
    written = io.BytesIO()
    sentences = iter(["hello world foo bar baz"] * 50)
    SentencePieceTrainer.train(
        sentence_iterator=sentences,
        model_writer=written,
        vocab_size=18,
        treat_whitespace_as_suffix=True,
        minloglevel=9,
    )
    processor = SentencePieceProcessor(model_proto=written.getvalue())
    mine = normalizer({"type": "sentencepiece", "treat_whitespace_as_suffix": True})
    texts = ["  a  b ", "a", "", "  ", "\x01", "a▁▁", "▁"]
    assert results(mine, texts) == [processor.normalize(text) for text in texts]
    assert results(mine, texts[:2]) == ["a▁b▁", "a▁"]


def test_user_defined_symbols_are_left_alone():
    options = {"rule": "nfkc", "user_defined_symbols": ["ﬁ", "Ａb", " x", "Ａ"]}
    mine = normalizer({"type": "sentencepiece", **options})
    assert results(mine, ["ﬁﬂ Ａb ＡＢ", " x  x", "ﬁ\u0301"]) == ["▁ﬁfl▁Ａb▁ＡB", "▁x▁x", "▁ﬁ\u0301"]


@pytest.mark.parametrize("name", ["nmt_nfkc", "nfkc_cf"])
def test_as_hugging_faces_precompiled(name):
    mine = normalizer({"type": "charsmap", "rule": name, "reference": "huggingface"})
    peer = peers.Precompiled(named_charsmap(name).to_bytes())
    texts = ["".join(f"A{c}\u0301{c}b" for c in CHARACTERS[i : i + 64]) for i in range(0, len(CHARACTERS), 64)]
    assert_same(mine, peer, texts if name == "nmt_nfkc" else texts[:4000])
    assert_same(mine, peer, ASSIGNED[:: 1 if name == "nmt_nfkc" else 11])

    @settings(max_examples=300, deadline=None)
    @given(texts=st.lists(ruled, max_size=4))
    def compare(texts):
        assert_same(mine, peer, texts)

    compare()


def longest_first(rules: dict[str, str], text: str) -> str:
    """The plain rule: at each position the longest source, else one character."""
    out, i = "", 0
    while i < len(text):
        source = max((s for s in rules if text.startswith(s, i)), key=len, default=None)
        out += text[i] if source is None else rules[source]
        i += 1 if source is None else len(source)
    return out


letters = st.sampled_from("abcAB é\u0301日本語😀😁\U0010ffff\x7f")


@settings(max_examples=150, deadline=None)
@given(
    rules=st.dictionaries(st.text(letters, min_size=1, max_size=5), st.text(letters, max_size=4), max_size=12),
    texts=st.lists(st.text(letters, max_size=20), max_size=4),
)
def test_charsmaps_of_any_rules(rules, texts):
    charsmap = Charsmap.from_mapping(rules)
    assert charsmap.mapping() == rules
    mine = normalizer({"type": "charsmap", "mapping": rules})
    assert results(mine, texts) == [longest_first(rules, text) for text in texts]
    if rules:
        huggingface = normalizer({"type": "charsmap", "mapping": rules, "reference": "huggingface"})
        assert_same(huggingface, peers.Precompiled(charsmap.to_bytes()), texts)


def test_long_and_many_sources():
    rules = {"x" * n + "é": str(n) for n in range(1, 1000, 50)}
    mine = normalizer({"type": "charsmap", "mapping": rules})
    text = "".join(rules) + "x" * 2000
    assert mine.normalize_text(text) == "".join(rules.values()) + "x" * 2000
    with pytest.raises(ConfigError, match="more than 1024 bytes"):
        Charsmap.from_mapping({"x" * 1025: ""})
    chance = random.Random(5)
    many = {"".join(chance.choices("abcdefghé漢", k=chance.randrange(1, 9))): str(i % 50) for i in range(30_000)}
    assert Charsmap.from_mapping(many).mapping() == many


HOSTILE_DOCUMENTS = Documents.from_strings(
    ["aab é日本ﬁ" * 50, "", "abababab" * 100, "a" * 10_000, "".join(map(chr, range(1, 0x3000, 7)))]
)


def survive(blob: bytes) -> bool:
    """Read a blob and, if it is accepted, normalize with it: whatever comes out is UTF-8."""
    try:
        charsmap = Charsmap.from_bytes(blob)
    except FormatError:
        return False
    for reference in ("sentencepiece", "huggingface"):
        mine = normalizer({"type": "charsmap", "table": charsmap, "reference": reference})
        mine.normalize(HOSTILE_DOCUMENTS).data.tobytes().decode()
    return True


def test_mutated_blobs_neither_crash_nor_hang():
    small = Charsmap.from_mapping({"a": "b", "ab": "", "é": "xyz", "日本": " ", "ﬁ": "fi"}).to_bytes()
    large = named_charsmap("nmt_nfkc").to_bytes()
    chance = random.Random(7)
    outcomes = set()
    for attempt in range(300):
        blob = bytearray(large if attempt % 10 == 0 else small)
        for _ in range(chance.randrange(1, 6)):
            kind = chance.random()
            if kind < 0.75:
                blob[chance.randrange(len(blob))] = chance.randrange(256)
            elif kind < 0.9:
                del blob[chance.randrange(4, max(5, len(blob))) :]
            else:
                blob[:4] = chance.randrange(len(blob) + 9).to_bytes(4, "little")
        outcomes.add(survive(bytes(blob)))
    assert outcomes == {True, False}


@settings(max_examples=100, deadline=None)
@given(units=st.lists(st.integers(0, 2**32 - 1), max_size=40), targets=st.binary(max_size=20))
def test_random_units_neither_crash_nor_hang(units, targets):
    survive(b"".join(n.to_bytes(4, "little") for n in (4 * len(units), *units)) + targets)


def test_a_trie_that_leads_back_to_itself_is_refused():
    units = [0] * 256
    units[0] = 128 << 10
    # Below the root's block (128), every "a" leads to that block again.
    node = 128 ^ ord("a")
    units[node] = ord("a") | (node ^ 128) << 10
    blob = b"".join(n.to_bytes(4, "little") for n in (4 * len(units), *units)) + b"x\0"
    with pytest.raises(FormatError, match="no end"):
        Charsmap.from_bytes(blob)


def _fields(message: bytes) -> dict[int, list]:
    """The fields of a protobuf message, nested ones as bytes."""
    found: dict[int, list] = {}
    i = 0

    def varint() -> int:
        nonlocal i
        value = shift = 0
        while True:
            byte = message[i]
            i += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while i < len(message):
        tag = varint()
        size = {0: 0, 1: 8, 5: 4}.get(tag & 7)
        value = varint() if size in (None, 0) else None
        if size is None:
            value, i = message[i : i + value], i + value
        elif size:
            i += size
        found.setdefault(tag >> 3, []).append(value)
    return found


MODELS = (
    "bpemb-en-100k", "laser50k-sp", "llama2-sp", "mistral-v1", "mistral-v3", "pegasus-unigram", "sp-test-ja-model",
    "sp-test-model", "t5-base-unigram", "xlnet-unigram",
)  # fmt: skip


def sample(shared) -> list[str]:
    texts = []
    for group in ("books", "web_multilingual", "parallel", "code"):
        column = pq.read_table(sorted((shared / "corpus" / group).glob("*.parquet"))[-1], columns=["text"])["text"]
        texts += column.take(list(range(0, len(column), max(1, len(column) // 8)))).to_pylist()
    return [text[:20_000] for text in texts if text]


@pytest.mark.parametrize("name", MODELS)
def test_published_models(name, shared):
    path = next((shared / "vocabs" / name).glob("*.model"))
    model = _fields(path.read_bytes())
    spec = _fields(model[3][0])
    names = {3: "add_dummy_prefix", 4: "remove_extra_whitespaces", 5: "escape_whitespaces"}
    options = {names[number]: bool(spec[number][0]) for number in names if number in spec}
    pieces = map(_fields, model[1])
    symbols = [piece[1][0].decode() for piece in pieces if piece.get(3) == [4]]
    charsmap = spec.get(2, [b""])[0]
    mine = Normalizer.sentencepiece(charsmap, **options)
    texts = [*ASSIGNED[::5], *sample(shared), "".join(f"{c} \u0301" for c in ASSIGNED)]
    assert_same(mine, Peer(model_file=str(path)), texts)
    # What the processor does before it encodes leaves the model's symbols alone.
    processor = SentencePieceProcessor(model_file=str(path))
    whole = Normalizer.sentencepiece(charsmap, user_defined_symbols=symbols, **options)
    texts = [*sample(shared), *(f"a{s}ﬁ{s} {s}\u0301" for s in symbols)]
    assert results(whole, texts) == [processor.normalize(text) for text in texts]


@pytest.mark.parametrize("name", ["t5-small-hf", "kitoken-xlnet_base_cased"])
def test_published_tokenizer_json(name, shared):
    spec = json.loads((shared / "vocabs" / name / "tokenizer.json").read_text())["normalizer"]
    table = spec.get("normalizers", [spec])[-1]["precompiled_charsmap"]
    mine = normalizer({"type": "charsmap", "table": table, "reference": "huggingface"})
    peer = peers.Precompiled(base64.b64decode(table))
    assert_same(mine, peer, [*ASSIGNED, *sample(shared), "".join(f"{c}\u0301" for c in ASSIGNED)])


@pytest.mark.parametrize("name", RULES)
def test_published_charsmaps(name, shared):
    blob = (shared / "vectors" / "sentencepiece" / f"{name}.bin").read_bytes()
    assert Charsmap.from_bytes(blob).to_bytes() == blob
    mine = normalizer({"type": "charsmap", "table": blob})
    assert mine.normalize_text("ｶﾞ Ａ\u0301①") == normalizer({"type": "charsmap", "rule": name}).normalize_text(
        "ｶﾞ Ａ\u0301①"
    )


@pytest.mark.parametrize("name", ["nfc", "nfc_cf", "nfd", "nfd_cf", "nfkd", "nfkd_cf"])
def test_published_tables(name, shared):
    path = shared / "vectors" / "sentencepiece" / f"{name}.tsv"
    rules = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        source, target, *_ = line.split("\t")
        rules["".join(chr(int(c, 16)) for c in source.split())] = "".join(chr(int(c, 16)) for c in target.split())
    mine = normalizer({"type": "sentencepiece", "mapping": rules})
    peer = Peer(rule_tsv=str(path))
    assert_same(mine, peer, [*rules, *sample(shared)])
