"""From one format to another, and the reasons why not."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import shardpiece
from shardpiece.cli import cli
from shardpiece.errors import FormatError, OutputError, ShardpieceError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer import conversion
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.formats import gpt2_files, subword_nmt, tekken, tiktoken, wordpiece_vocab
from tests.tokenizer.published import CORPUS, bert_lines, codes_file, random_ranks, rank_file, tekken_file, write


def trained(algorithm: str = "bpe", pretokenizer="gpt2", **settings) -> shardpiece.Tokenizer:
    words = shardpiece.WordTable.from_texts(CORPUS, pretokenizer)
    return shardpiece.train(words, algorithm, **{"vocab_size": 400, **settings})


def convert(*args) -> tuple[int, str]:
    """What the command prints; errors of ours as text with code 2."""
    result = CliRunner().invoke(cli, ["convert", *map(str, args)])
    if result.exception is None or isinstance(result.exception, SystemExit):
        return result.exit_code, result.output
    assert isinstance(result.exception, ShardpieceError), result.exception
    return result.exception.exit_code, f"{result.output}{result.exception}"


def names(directory) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_gpt2_to_tiktoken_and_back(tmp_path):
    ours = trained(tie_break="id")
    for name, raw in gpt2_files.to_files(ours).items():
        (tmp_path / name).write_bytes(raw)
    code, output = convert(tmp_path, tmp_path / "out" / "mine.tiktoken", "--to", "tiktoken")
    assert code == 0, output
    assert 'the special tokens {"<|endoftext|>": 399}' in output
    assert "not in this format: the pattern '(?:[sdmt]" in output
    assert names(tmp_path / "out") == ["mine.tiktoken"]
    arguments = ["--pretokenizer", "gpt2", "--special-token", "<|endoftext|>=399"]
    code, output = convert(tmp_path / "out", tmp_path / "back", "--to", "gpt2", *arguments)
    assert code == 0, output
    for name in ("vocab.json", "merges.txt"):
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / name).read_bytes()
    assert names(tmp_path / "back") == ["merges.txt", "tokenizer_config.json", "vocab.json"]
    code, output = convert(tmp_path / "out", tmp_path / "artifact", "--to", "shardpiece", *arguments)
    assert code == 0, output
    loaded = shardpiece.load(tmp_path / "artifact")
    assert [loaded.encode(text) for text in CORPUS] == [ours.encode(text) for text in CORPUS]
    assert loaded.provenance["read_from"]["format"] == "tiktoken"


def test_every_format_to_itself(tmp_path):
    (tmp_path / "codes").write_bytes(codes_file())
    write(tmp_path / "bert", vocab__txt=bert_lines())
    write(tmp_path, tekken__json=tekken_file(random_ranks(0)))
    for source, to, name in (
        ("codes", "subword-nmt", "bpe.codes"),
        ("bert", "wordpiece", "vocab.txt"),
        ("tekken.json", "tekken", "tekken.json"),
    ):
        code, output = convert(tmp_path / source, tmp_path / "out" / to, "--to", to)
        assert code == 0, output
        again = shardpiece.load(tmp_path / "out" / to)
        assert again.fingerprint == shardpiece.load(tmp_path / source).fingerprint
        assert (tmp_path / "out" / to / name).exists()
    assert (tmp_path / "out" / "subword-nmt" / "bpe.codes").read_bytes() == (tmp_path / "codes").read_bytes()


def test_places_that_are_taken(tmp_path):
    write(tmp_path / "bert", vocab__txt=bert_lines())
    source, out = tmp_path / "bert", tmp_path / "out"
    assert convert(source, out, "--to", "wordpiece")[0] == 0
    code, output = convert(source, out, "--to", "wordpiece")
    assert (code, "not empty" in output, "--overwrite" in output) == (2, True, True)
    assert convert(source, out, "--to", "wordpiece", "--overwrite")[0] == 0
    code, output = convert(source, source, "--to", "wordpiece", "--overwrite")
    assert (code, "source and destination are the same" in output) == (2, True)
    code, output = convert(source, source / "vocab.txt" / "x", "--to", "wordpiece")
    assert code == 2
    code, output = convert(source, source / "vocab.txt", "--to", "wordpiece")
    assert (code, "a file, where wordpiece needs a directory" in output) == (2, True)
    (out / "tokenizer.json").write_text("{}")
    code, output = convert(source, out, "--to", "wordpiece", "--overwrite")
    assert (code, "holds tokenizer.json, another tokenizer's" in output) == (2, True)
    assert names(out) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    assert (source / "vocab.txt").read_bytes() == (out / "vocab.txt").read_bytes()


def test_nothing_is_left_of_what_failed(tmp_path, monkeypatch):
    write(tmp_path / "bert", vocab__txt=bert_lines())
    tokenizer = shardpiece.load(tmp_path / "bert")
    broken = conversion.TARGETS["wordpiece"]
    other = shardpiece.load(write(tmp_path / "other", vocab__txt=[*bert_lines()[:-1], "zzz"]))
    monkeypatch.setitem(conversion.TARGETS, "wordpiece", replace(broken, read=lambda files, tokenizer: other))
    with pytest.raises(FormatError, match="encodes .* in another way; nothing was written"):
        conversion.convert(tokenizer, str(tmp_path / "out"), "wordpiece")
    monkeypatch.setitem(conversion.TARGETS, "wordpiece", broken)
    write_file, written = conversion.storage.write_bytes, []

    def full_after_one(path, content):
        if written:
            raise OutputError("the disk is full")
        written.append(path)
        write_file(path, content)

    monkeypatch.setattr(conversion.storage, "write_bytes", full_after_one)
    with pytest.raises(OutputError, match="full"):
        conversion.convert(tokenizer, str(tmp_path / "out"), "wordpiece")
    assert len(written) == 1
    assert names(tmp_path) == ["bert", "other"]


# --- refused, with the reason -----------------------------------------------------------------------------------------

BYTES = [bytes([b]) for b in range(256)]


def byte_level(pieces: list[bytes], merges: list[tuple[int, int]], **settings) -> shardpiece.Tokenizer:
    return shardpiece.Tokenizer(TextEngine("gpt2"), BPEModel([*BYTES, *pieces], merges, **settings))


A, B, C = b"abc"


def test_what_ranks_cannot_say():
    """tiktoken merges any two neighbours that make a token, the lowest id first, and takes whole words."""
    for tokenizer, message in (
        (byte_level([b"bc", b"ab"], [(A, B), (B, C)]), "b'ab' is merged before b'bc' and has a higher id"),
        # abc of ab and c, when bc is first: tiktoken's abc is of a and bc.
        (byte_level([b"bc", b"ab", b"abc"], [(B, C), (A, B), (257, C)]), "any two neighbours.*b'a' and b'bc'"),
        (byte_level([b"ab", b"zz"], [(A, B)]), "any two neighbours that make a token, so b'z' and b'z'"),
        (byte_level([b"abc"], []), "no merges of this tokenizer lead to b'abc'"),
        (trained("wordpiece", vocab_size=300), "one of kind wordpiece"),
        (trained(special_tokens_at="front"), "dense ids from 0"),
        (trained(pretokenizer="starcoder"), "splits by one pattern"),
    ):
        with pytest.raises(FormatError, match=message):
            tiktoken.ranks(tokenizer)
    whole = byte_level([b"abc"], [], ignore_merges=True)
    assert tiktoken.problem(whole) is None
    assert "lead to b'abc'" in gpt2_files.problem(whole)
    plain = byte_level([b"ab", b"abc"], [(A, B), (256, C)])
    assert tiktoken.problem(plain) is None
    peer = pytest.importorskip("tiktoken").Encoding(
        "x", pat_str=tiktoken.pat_str(plain), mergeable_ranks=tiktoken.ranks(plain), special_tokens={}
    )
    for text in ("abcab", "bcabcc", "aabc cab"):
        assert plain.encode(text) == peer.encode_ordinary(text)


def test_what_the_others_cannot_say():
    bpe, wordpiece = trained(), trained("wordpiece", TextEngine("bert", "bert"), vocab_size=300)
    words = trained(style="end-of-word", pretokenizer="whitespace_split", vocab_size=300)
    for module, tokenizer, message in (
        (tekken, wordpiece, "byte-level BPE alone"),
        (tekken, bpe, "special tokens in front"),
        (tekken, trained(special_tokens_at="front"), "256 bytes in order first"),
        (tekken, trained(special_tokens_at="front", alphabet_order="raw", pretokenizer="starcoder"), "one pattern"),
        (wordpiece_vocab, bpe, "is for WordPiece"),
        (wordpiece_vocab, trained("wordpiece", "bert", vocab_size=300), "treat text as BERT does"),
        (wordpiece_vocab, trained("wordpiece", TextEngine("bert", "bert"), special_tokens=["[UNK]", "<x>"]), "not the special token <x>"),
        (gpt2_files, wordpiece, "byte-level BPE"),
        (gpt2_files, trained(pretokenizer="cl100k_base"), "split as GPT-2 does"),
        (subword_nmt, bpe, "BPE over characters"),
        (subword_nmt, words, "splits at spaces and line ends alone"),
    ):  # fmt: skip
        assert message in (module.problem(tokenizer) or ""), (module.__name__, message)
    assert tekken.problem(trained(special_tokens_at="front", alphabet_order="raw")) is None
    assert wordpiece_vocab.problem(wordpiece) is None
    own = trained(
        style="end-of-word", pretokenizer=subword_nmt.PRETOKENIZER, tie_break="lexicographic_last", vocab_size=300
    )
    again = subword_nmt.read_codes(subword_nmt.to_bytes(own), "x")
    for text in CORPUS:
        pieces = [own.token_bytes(i) for i in own.encode(text)]
        found = [again.token_bytes(i) for i in again.encode(text) if i]
        assert found == [piece for piece in pieces if piece in again.model.vocab.ids]


def test_the_command_says_what_is_wrong(tmp_path):
    path = tmp_path / "mine.tiktoken"
    path.write_bytes(rank_file(random_ranks(0)))
    code, output = convert(path, tmp_path / "out", "--to", "gpt2")
    assert (code, "holds no pattern" in output) == (2, True)
    code, output = convert(path, tmp_path / "out", "--to", "gpt2", "--pretokenizer", "gpt2", "--special-token", "<s>")
    assert (code, "no published vocabulary" in output) == (2, True)
    code, output = convert(path, tmp_path / "out", "--to", "gpt2", "--pretokenizer", "gpt2", "--special-token", "<s>=x")
    assert (code, "expected TEXT=ID" in output) == (2, True)
    code, output = convert(path, tmp_path / "out", "--to", "wordpiece", "--pretokenizer", "gpt2")
    assert (code, f"{path} cannot be written as wordpiece: vocab.txt is for WordPiece" in output) == (2, True)
    assert names(tmp_path) == ["mine.tiktoken"]
    shown = CliRunner().invoke(
        cli, ["tokenize", "--tokenizer", str(path), "--tokenizer-pretokenizer", "gpt2", "--json", "low it's"]
    )
    assert json.loads(shown.output)["ids"] == shardpiece.load(path, "gpt2").encode("low it's")


def test_what_a_library_does_in_another_way_now_and_then_has_to_be_asked_for(tmp_path):
    unigram = trained("unigram", "metaspace", vocab_size=200)
    assert conversion.TARGETS["huggingface"].nearly(unigram) is None
    narrow = replace(unigram, model=replace(unigram.model, arithmetic="float32"))
    with pytest.raises(
        FormatError, match="cannot be written as huggingface exactly: .* float64, .* With --approximate"
    ):
        conversion.convert(narrow, str(tmp_path / "t.json"), "huggingface")
    assert names(tmp_path) == []
    conversion.convert(narrow, str(tmp_path / "t.json"), "huggingface", approximate=True)
    assert names(tmp_path) == ["t.json"]


def test_only_spaces_are_removed_as_sentencepiece_does(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    plain = {"type": "sentencepiece", "rule": "identity", "remove_extra_whitespaces": True, "add_dummy_prefix": True}
    words = shardpiece.WordTable.from_texts(CORPUS, TextEngine("metaspace_never", plain))
    ours = shardpiece.train(words, "unigram", vocab_size=200)
    conversion.convert(ours, str(tmp_path / "tokenizer.json"), "huggingface", approximate=True)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    again = shardpiece.load(tmp_path / "tokenizer.json")
    for text in ("  the  lower ", "▁", "the ▁", "▁ the", "\u2028the\t", "\u00a0 \r\n"):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids == again.encode(text), ascii(text)
