"""The artifact and the two exports: the peers load them and encode as we do."""

import json

import pytest

import shardpiece
from shardpiece.errors import FormatError
from shardpiece.text import byte_alphabet, patterns
from shardpiece.text.pretokenizers import PRETOKENIZERS
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.formats import tiktoken
from shardpiece.tokenizer.pieces import readable, show_pieces
from tests.conftest import TEXTS
from tests.text.test_pretokenizers import generated
from tests.tokenizer.test_encode import random_model

CORPUS = [text or "" for text in TEXTS]


@pytest.fixture(scope="module", params=["gpt2", "cl100k_base", "o200k_base", "llama3"])
def tokenizer(request):
    words = shardpiece.WordTable.from_texts(CORPUS * 2, request.param)
    return shardpiece.train_bpe(words, 500, special_tokens=["<|endoftext|>"])


def test_round_trip(tokenizer, tmp_path):
    artifact.save(tokenizer, str(tmp_path))
    loaded = shardpiece.load(str(tmp_path))
    assert loaded == tokenizer or loaded.fingerprint == tokenizer.fingerprint
    assert loaded.provenance == tokenizer.provenance
    assert [loaded.encode(text) for text in CORPUS] == [tokenizer.encode(text) for text in CORPUS]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    artifact.save(loaded, str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_hugging_face_encodes_as_we_do(tokenizer, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    artifact.save(tokenizer, str(tmp_path))
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert peer.get_vocab_size() == tokenizer.vocab_size
    for text in CORPUS:
        # Hugging Face always recognizes special tokens in text; we do not unless asked.
        ids = tokenizer.encode(text, special_tokens_in_text="token")
        assert peer.encode(text).ids == ids
        assert peer.decode(ids, skip_special_tokens=False) == text


ENGINES = [
    *((name, None) for name in PRETOKENIZERS if name not in patterns.PATTERNS),
    ("gpt2", "nfc"),
    ("bert", "bert"),
    ("bert", {"type": "bert", "lowercase": False}),
    ("cl100k_base", ["nfkd", "strip_accents", "lowercase", "nmt"]),
    ("gpt2", ["strip", "collapse_spaces", {"type": "prepend", "text": "x"}]),
    ("metaspace_first", [{"type": "replace", "literal": "a", "content": "b"}, {"type": "strip", "left": False}]),
    ("whitespace_split", {"type": "replace", "pattern": "[aeiou]+", "content": "_"}),
    (["whitespace_split", "metaspace"], {"type": "charsmap", "rule": "nmt_nfkc", "reference": "huggingface"}),
    ({"type": "split", "pattern": "\\s", "behavior": "merged_with_next", "invert": True}, "nfd"),
    ([{"type": "digit_groups", "size": 4}, "punctuation"], None),
]


@pytest.mark.parametrize(("pretokenizer", "normalizer"), ENGINES)
def test_hugging_face_encodes_as_we_do_with_every_text_engine(pretokenizer, normalizer, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    engine = shardpiece.TextEngine(pretokenizer, normalizer)
    texts = [*CORPUS, *generated(300, 5), "a<s>b 1234567", " <s> <s>b", "<s>", " x", "<s> <s>"]
    ours = shardpiece.train_bpe(
        shardpiece.WordTable.from_texts(texts, engine), 700, tie_break="id", special_tokens=["<s>", "<|endoftext|>"]
    )
    artifact.save(ours, str(tmp_path))
    assert shardpiece.load(str(tmp_path)).fingerprint == ours.fingerprint
    peer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    encoded = ours.encode_batch(texts, special_tokens_in_text="token").to_pylist()
    for text, ids in zip(texts, encoded, strict=True):
        assert ids == peer.encode(text).ids, repr(text)


@pytest.mark.parametrize("normalizer", ["nmt_nfkc", {"type": "sentencepiece"}])
def test_what_tokenizer_json_cannot_say_is_refused_before_training(normalizer):
    words = shardpiece.WordTable.from_texts(CORPUS, shardpiece.TextEngine("metaspace", normalizer))
    with pytest.raises(FormatError, match="reference: huggingface"):
        shardpiece.train_bpe(words, 300)


def test_tiktoken_refuses_what_one_pattern_cannot_do():
    for engine in (shardpiece.TextEngine("starcoder"), shardpiece.TextEngine("gpt2", "nfc")):
        tokenizer = shardpiece.train_bpe(shardpiece.WordTable.from_texts(CORPUS, engine), 300)
        with pytest.raises(FormatError, match="splits by one pattern"):
            tiktoken.ranks(tokenizer)
    for pattern in ("digits_left3", r"\w+", r"ab|[^a]", r"\s+(?!\S)|\S"):
        tokenizer = shardpiece.train_bpe(shardpiece.WordTable.from_texts(CORPUS, pattern), 300)
        with pytest.raises(FormatError, match="drops what the pattern"):
            tiktoken.ranks(tokenizer)
    for pattern in ("word", "character", r"\w+|\W", r"ab|[^a]|a(?!b)", r"(?:a|b)+c|[\s\S]"):
        tokenizer = shardpiece.train_bpe(shardpiece.WordTable.from_texts(CORPUS, pattern), 300)
        peer = pytest.importorskip("tiktoken").Encoding(
            "test", pat_str=tiktoken.pat_str(tokenizer), mergeable_ranks=tiktoken.ranks(tokenizer), special_tokens={}
        )
        for text in CORPUS:
            assert peer.encode_ordinary(text) == tokenizer.encode(text)


def test_tiktoken_encodes_as_we_do(tokenizer):
    peer = pytest.importorskip("tiktoken").Encoding(
        "test",
        pat_str=tokenizer.pretokenizer.pattern,
        mergeable_ranks=tiktoken.ranks(tokenizer),
        special_tokens={"<|endoftext|>": tokenizer.special_id("<|endoftext|>")},
    )
    for text in CORPUS:
        assert peer.encode_ordinary(text) == tokenizer.encode(text)


def test_tiktoken_file_has_every_rank(tokenizer, tmp_path):
    load = pytest.importorskip("tiktoken.load").load_tiktoken_bpe
    path = tmp_path / "ours.tiktoken"
    path.write_bytes(tiktoken.to_bytes(tokenizer))
    assert load(str(path)) == tiktoken.ranks(tokenizer)


def test_tiktoken_refuses_what_it_cannot_express():
    model = random_model(3)
    tokenizer = shardpiece.Tokenizer(shardpiece.PreTokenizer("gpt2"), model)
    with pytest.raises(FormatError, match="merge order"):
        tiktoken.ranks(tokenizer)
    words = shardpiece.WordTable.from_texts(["low lower"], "gpt2")
    with pytest.raises(FormatError, match="dense ids"):
        tiktoken.ranks(shardpiece.train(words, vocab_size=260, special_tokens_at="front"))
    with pytest.raises(FormatError, match="kind wordpiece"):
        tiktoken.ranks(shardpiece.train(words, "wordpiece", vocab_size=60))


def test_byte_alphabet():
    alphabet = byte_alphabet.byte_alphabet()
    assert len(set(alphabet)) == 256
    assert (alphabet[ord(" ")], alphabet[ord("\n")], alphabet[ord("a")]) == ("Ġ", "Ċ", "a")
    assert all(byte_alphabet.unspell(byte_alphabet.spell(bytes([b]))) == bytes([b]) for b in range(256))
    assert byte_alphabet.byte_level_order()[0] == ord("!")


def test_altered_and_unfinished_artifacts_are_refused(tokenizer, tmp_path):
    with pytest.raises(FormatError, match="no tokenizer here"):
        shardpiece.load(str(tmp_path))
    artifact.save(tokenizer, str(tmp_path))
    path = tmp_path / "tokenizer.json"
    good = path.read_text()
    content = json.loads(good)
    content["model"]["merges"][0], content["model"]["merges"][1] = content["model"]["merges"][:2][::-1]
    path.write_text(json.dumps(content))
    with pytest.raises(FormatError, match="one of the two files was changed"):
        shardpiece.load(str(tmp_path))
    for spoiled in ('{"model": {}}', "[]", "not json", '{"model": {"type": "WordPiece"}}'):
        path.write_text(spoiled)
        with pytest.raises(FormatError):
            shardpiece.load(str(tmp_path))
    path.write_text(good)
    metadata = json.loads((tmp_path / "shardpiece.json").read_text())
    (tmp_path / "shardpiece.json").write_text(json.dumps(metadata | {"version": 99}))
    with pytest.raises(FormatError, match="version"):
        shardpiece.load(str(tmp_path))


def test_fingerprint_changes_with_everything_that_decides_ids(tokenizer):
    model, pretokenizer = tokenizer.model, tokenizer.pretokenizer
    base = shardpiece.Tokenizer(pretokenizer, model, ("<a>",)).fingerprint
    assert shardpiece.Tokenizer(pretokenizer, model, ("<a>",), {"note": 1}).fingerprint == base
    assert shardpiece.Tokenizer(pretokenizer, model, ("<b>",)).fingerprint != base
    assert shardpiece.Tokenizer(shardpiece.PreTokenizer(r"\S+"), model, ("<a>",)).fingerprint != base
    fewer = shardpiece.tokenizer.bpe.BPEModel(model.vocab, model.merges[:-1])
    assert shardpiece.Tokenizer(pretokenizer, fewer, ("<a>",)).fingerprint != base


def test_pieces_show_every_byte(tokenizer):
    assert readable(b" a\n\t") == "·a↵⇥"
    assert readable("é".encode()[:1]) == "<C3>"
    assert readable("\u200d\u00a0".encode()) == "<U+200D><U+00A0>"
    assert "3 tokens, 0 bytes" not in show_pieces(tokenizer, [])
    assert show_pieces(tokenizer, tokenizer.encode("low")).endswith("bytes/token")
