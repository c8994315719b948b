"""Published formats: encoded as by the libraries that they are of, written as they were read."""

import io
import json
import random

import pytest

import shardpiece
from shardpiece.errors import FormatError
from shardpiece.text.patterns import PATTERNS
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.formats import gpt2_files, published, subword_nmt, tekken, tiktoken, wordpiece_vocab
from tests.tokenizer.published import (
    CORPUS,
    bert_lines,
    codes_file,
    gpt2_peer,
    random_ranks,
    rank_file,
    tekken_file,
    write,
)

BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def letters(seed: int) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abc d", k=rng.randrange(40))) for _ in range(150)]


@pytest.mark.parametrize("seed", range(4))
def test_ranks_encode_as_tiktoken_does(seed, tmp_path):
    ranks = random_ranks(seed)
    special = {"<s>": len(ranks), "a<x>": len(ranks) + 5}
    peer = pytest.importorskip("tiktoken").Encoding(
        "test", pat_str=PATTERNS["gpt2"], mergeable_ranks=ranks, special_tokens=special
    )
    path = tmp_path / "any name"
    path.write_bytes(rank_file(ranks))
    ours = shardpiece.load(path, "gpt2", special)
    for text in [*CORPUS, *letters(seed), "a<x>b<s> aba<x>"]:
        assert ours.encode(text) == peer.encode_ordinary(text), text
        assert ours.encode(text, "token") == peer.encode(text, allowed_special="all"), text
    assert tiktoken.problem(ours) is None
    assert tiktoken.to_bytes(ours) == rank_file(dict(sorted(ranks.items(), key=lambda item: item[1])))
    again = tiktoken.read_ranks(tiktoken.to_bytes(ours), "again", "gpt2", special)
    assert again.fingerprint == ours.fingerprint


def test_published_vocabularies_have_what_tiktoken_gives_them():
    public = pytest.importorskip("tiktoken_ext.openai_public")
    import inspect
    import re

    for name, one in published.PUBLISHED.items():
        if name.startswith("llama"):
            continue
        source = inspect.getsource(getattr(public, name))
        hashes = re.findall(r'"([0-9a-f]{64})"', inspect.getsource(public.o200k_base) if "o200k" in name else source)
        if name != "gpt2":
            assert hashes == [one.sha256]
    # Without the network: the constructors call what reads files, and give the special tokens.
    for name in ("r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"):
        given = _constructed(public, name)["special_tokens"]
        ours = published.PUBLISHED[name].special_tokens
        assert ours == {text: i for text, i in given.items() if text != "<|reserved_200018|>"}


def _constructed(public, name):
    before = public.load_tiktoken_bpe
    public.load_tiktoken_bpe = lambda *args, **kwargs: {}
    try:
        return getattr(public, name)()
    finally:
        public.load_tiktoken_bpe = before


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("cl100k_base.tiktoken", "cl100k_base"),
        ("o200k-harmony.tiktoken", "o200k_harmony"),
        ("P50K_edit", "p50k_edit"),
        ("gpt2.bpe", "gpt2"),
        ("Meta-Llama-3-8B", "llama3"),
        ("llama3", "llama3"),
        ("Llama-3.1-8B-Instruct", "llama3.1"),
        ("llama3_2", "llama3.1"),
        ("llama4", None),
        ("llama2", None),
        ("my_cl100k_base", None),
    ],
)
def test_vocabularies_are_known_by_name(name, known):
    found = published.by_name(name)
    assert (found and found.name) == known


def test_llama_3_has_256_special_tokens():
    for name, named in (("llama3", 5), ("llama3.1", 8)):
        special = published.PUBLISHED[name].special_tokens
        assert [*special.values()] == [*range(128000, 128256)]
        assert sum("reserved" not in text for text in special) == named
        assert special["<|eot_id|>"] == 128009
    assert special["<|reserved_special_token_2|>"] == 128005


def test_tekken_encodes_as_tiktoken_does_with_its_entries(tmp_path):
    content = tekken_file(random_ranks(1), special=30)
    config = content["config"]
    ranks = {tiktoken.base64.b64decode(e["token_bytes"]): e["rank"] for e in content["vocab"][:-5]}
    peer = pytest.importorskip("tiktoken").Encoding(
        "test", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={}
    )
    ours = shardpiece.load(write(tmp_path, tekken__json=content))
    for text in [*CORPUS, *letters(7), "<s>[INST]"]:
        assert ours.encode(text) == [i + 30 for i in peer.encode(text, disallowed_special=())], text
    assert ours.special_id("[INST]") == 3
    assert ours.special_id("<SPECIAL_29>") == 29
    assert ours.encode("x[INST]", "token")[-1] == 3
    again = tekken.from_json(json.loads(tekken.to_bytes(ours)), "again")
    assert again.fingerprint == ours.fingerprint
    listed = [{"rank": i, "token_str": f"<{i}>", "is_control": True} for i in range(10)]
    newer = tekken_file(random_ranks(1), special=12, special_tokens=listed)
    newer["config"]["version"] = "v13"
    assert [*tekken.from_json(newer, "x").special_tokens][8:] == ["<8>", "<9>", "<SPECIAL_10>", "<SPECIAL_11>"]


@pytest.mark.parametrize("cased", [False, True])
def test_vocab_txt_encodes_as_bert(cased, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    path = write(tmp_path, vocab__txt=bert_lines(cased))
    peer = tokenizers.BertWordPieceTokenizer(f"{path}/vocab.txt", lowercase=not cased)
    ours = shardpiece.load(path)
    for text in [*CORPUS, "The LOWEST runs, [SEP] [unused1]", "x" * 101]:
        assert ours.encode(text) == tokenizers.Tokenizer.from_str(_unspecial(peer)).encode(text).ids, text
        ids = ours.encode(text, "token")
        assert ids == peer.encode(text, add_special_tokens=False).ids, text
        assert ours.encode(text, "token", add_special_tokens=True) == peer.encode(text).ids
        assert ours.decode(ids) == peer.decode(ids, skip_special_tokens=False)
    worker = packed.unpack(packed.pack(ours))
    assert (worker.added_tokens, worker.template, worker.decoder) == (ours.added_tokens, ours.template, ours.decoder)
    assert worker.decode(ids) == ours.decode(ids)
    assert shardpiece.load(path, lowercase=cased).fingerprint != ours.fingerprint
    files = wordpiece_vocab.to_files(ours)
    assert files["vocab.txt"] == (tmp_path / "vocab.txt").read_bytes()
    for name, raw in files.items():
        (tmp_path / name).write_bytes(raw)
    assert shardpiece.load(path).fingerprint == ours.fingerprint


def _unspecial(peer) -> str:
    content = json.loads(peer.to_str())
    return json.dumps({**content, "added_tokens": [], "post_processor": None})


def test_what_lies_beside_vocab_txt_decides_first(tmp_path):
    lines = bert_lines()
    plain = shardpiece.load(write(tmp_path, vocab__txt=lines))
    config = {
        "do_lower_case": False,
        "strip_accents": True,
        "tokenize_chinese_chars": False,
        "tokenizer_class": "BertTokenizer",
    }
    other = shardpiece.load(write(tmp_path, tokenizer_config__json=config))
    spec = other.engine.normalizer.spec
    assert (spec["lowercase"], spec["strip_accents"], spec["handle_chinese_chars"]) == (False, True, False)
    assert plain.engine.normalizer.spec["lowercase"]
    for wrong, message in (
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "tokenizer_class 'BertJapaneseTokenizer'"),
        ({"do_basic_tokenize": False}, "do_basic_tokenize"),
        ({"do_lower_case": "yes"}, "neither|not true or false"),
        ({"unk_token": "<unk>"}, "no line is the unknown token <unk>"),
    ):
        write(tmp_path, tokenizer_config__json=wrong)
        with pytest.raises(FormatError, match=message):
            shardpiece.load(tmp_path)
    write(tmp_path, tokenizer_config__json=b"{")
    with pytest.raises(FormatError, match="not readable as JSON"):
        shardpiece.load(tmp_path)


def test_gpt2_files_encode_as_byte_level_bpe(tmp_path):
    peer = gpt2_peer()
    peer.save_model(str(tmp_path))
    ours = shardpiece.load(tmp_path)
    assert ours.special_tokens == {"<|endoftext|>": 0}
    for text in [*CORPUS, *letters(3)]:
        ids = ours.encode(text)
        assert ids == peer.encode(text).ids if "<|" not in text else True
        assert ours.decode(ids) == text
    assert shardpiece.load(tmp_path / "merges.txt").fingerprint == ours.fingerprint
    files = gpt2_files.to_files(ours)
    assert gpt2_files.read_files(files["vocab.json"], files["merges.txt"], "again").fingerprint == ours.fingerprint
    assert (
        gpt2_files.read_files(
            files["vocab.json"], files["merges.txt"], "again", config=files["tokenizer_config.json"]
        ).fingerprint
        == ours.fingerprint
    )
    assert files["merges.txt"].split(b"\n")[1:] == (tmp_path / "merges.txt").read_bytes().split(b"\n")[1:]
    write(tmp_path, tokenizer_config__json={"add_prefix_space": True})
    with pytest.raises(FormatError, match="add_prefix_space"):
        shardpiece.load(tmp_path)


def test_what_lies_beside_vocab_json_decides_first(tmp_path):
    """Added tokens as transformers keeps them, and RoBERTa's template."""
    peer = gpt2_peer()
    peer.save_model(str(tmp_path))
    tokens = {
        "0": {"content": "<|endoftext|>", "special": True},
        "600": {"content": "[X]", "special": False},
        "601": {"content": "<mask>", "special": True, "lstrip": True},
        "602": {"content": "<s>"},
        "603": {"content": "</s>"},
    }
    write(tmp_path, tokenizer_config__json={"tokenizer_class": "RobertaTokenizer", "added_tokens_decoder": tokens})
    ours = shardpiece.load(tmp_path)
    assert ours.encode("low[X]low") == [*peer.encode("low").ids, 600, *peer.encode("low").ids]
    assert ours.encode("low <mask>", "token") == [*peer.encode("low").ids, 601]
    assert ours.template.spec == {"before": [], "after": []}
    files = gpt2_files.to_files(ours)
    again = gpt2_files.read_files(
        files["vocab.json"], files["merges.txt"], "again", config=files["tokenizer_config.json"]
    )
    assert again.added_tokens == ours.added_tokens
    vocab = json.loads((tmp_path / "vocab.json").read_text()) | {"<s>": 602, "</s>": 603}
    write(tmp_path, vocab__json=vocab)
    around = shardpiece.load(tmp_path)
    assert around.encode("low", add_special_tokens=True) == [602, *peer.encode("low").ids, 603]
    for wrong, message in (
        ({"tokenizer_class": "Qwen2Tokenizer"}, "tokenizer_class 'Qwen2Tokenizer'"),
        ({"added_tokens_decoder": {"x": {"content": "a"}}}, "added_tokens_decoder.*is damaged"),
        ({"added_tokens_decoder": {"7": {"content": "<|endoftext|>"}}}, "has the id 0 there, and 7"),
    ):
        write(tmp_path, tokenizer_config__json=wrong)
        with pytest.raises(FormatError, match=message):
            shardpiece.load(tmp_path)


def test_codes_segment_as_apply_bpe(tmp_path):
    raw = codes_file()
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe")
    peer = apply_bpe.BPE(io.StringIO(raw.decode()))
    path = tmp_path / "codes"
    path.write_bytes(raw)
    ours = shardpiece.load(path)
    known = {c for line in raw.decode().split("\n")[1:] for c in line.replace("</w>", "")}
    texts = [*CORPUS, "low\tlower  lowest\u00a0runs", "  wide ", "r l", "widest," * 30]
    compared = 0
    for line in (line for text in texts for line in text.split("\n") if "\r" not in line):
        expected = peer.segment_tokens(line.strip(" ").split(" "))
        got = subword_nmt.segmented(ours, ours.encode(line)).split(" ") if expected else []
        assert len(got) == len(expected), line
        for one, other in zip(got, expected, strict=True):
            assert one == (
                "<unk>" if other.removesuffix("@@") not in known and len(other.removesuffix("@@")) == 1 else other
            )
            compared += one != "<unk>"
    assert compared > 100
    assert ours.decode(ours.encode("low  lowest\nruns")) == "low lowest runs"
    assert subword_nmt.to_bytes(ours) == raw
    ids = [ours.encode(c)[0] for c in sorted(known & set("abcdefr"))]
    assert ids == sorted(ids)
    assert ours.special_tokens == {"<unk>": 0}


# --- what cannot be read exactly --------------------------------------------------------------------------------------


def ranks_with(line: bytes) -> bytes:
    return rank_file(random_ranks(0)) + line


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (ranks_with(b"YQ== 999\n"), "line .*: the token b'a' of line"),
        (ranks_with(b"eHl6 5\n"), "rank 5 is that of line"),
        (ranks_with(b"eHl6 2000000000\n"), "ids below the largest are no token"),
        (ranks_with(b"eHl6\n"), "is not a token in base64"),
        (ranks_with(b"eHl 700\n"), "is not a token in base64"),
        (ranks_with(b" 700\n"), "is not a token in base64"),
        (rank_file({b"a": 0, b"b": 1}), "lacks the single bytes"),
    ],
)
def test_damaged_ranks(raw, message):
    with pytest.raises(FormatError, match=message):
        tiktoken.read_ranks(raw, "x", "gpt2")


def test_ranks_need_a_pattern_and_special_tokens_their_own_ids(tmp_path):
    path = tmp_path / "mine.tiktoken"
    path.write_bytes(rank_file(random_ranks(0)))
    with pytest.raises(FormatError, match="holds no pattern.*--tokenizer-pretokenizer"):
        shardpiece.load(path)
    with pytest.raises(FormatError, match="special token is that of"):
        shardpiece.load(path, "gpt2", {"<s>": 3})
    with pytest.raises(FormatError, match="no published vocabulary"):
        shardpiece.load(path, "gpt2", "cl50k")
    gap = random_ranks(0)
    last = max(gap, key=gap.get)
    gap[last] += 1
    path.write_bytes(rank_file(gap))
    with pytest.raises(FormatError, match=f"1 ids below the largest are no token, the first one {gap[last] - 1}"):
        shardpiece.load(path, "gpt2")
    filled = shardpiece.load(path, "gpt2", {"<s>": gap[last] - 1})
    assert tiktoken.to_bytes(filled) == rank_file(dict(sorted(gap.items(), key=lambda item: item[1])))
    assert shardpiece.load(path, "gpt2", {"<s>": gap[last] - 1}).special_tokens == {"<s>": gap[last] - 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["config"].update(default_vocab_size=10**6), "default_vocab_size"),
        (lambda c: c["config"].update(default_vocab_size="many"), "not a number of tokens"),
        (lambda c: c["config"].update(version="v13"), "special_tokens is missing"),
        (lambda c: c["config"].update(pattern=r"a(?<=b)|."), "not understood exactly"),
        (lambda c: c["config"].update(pattern=r"\w+$"), "not understood exactly"),
        (
            lambda c: c["vocab"][300].update(rank=7) if len(c["vocab"]) > 300 else c["vocab"][20].update(rank=7),
            "rank is 7",
        ),
        (lambda c: c["vocab"][3].update(token_bytes="BA=="), r"vocab\[3\] is b'\\x04'"),
        (lambda c: c["vocab"][3].update(token_bytes="%"), "no token_bytes in base64"),
        (lambda c: c["vocab"][260].update(token_bytes=c["vocab"][261]["token_bytes"]), r"has the bytes"),
        (lambda c: c.update(special_tokens=[{"rank": 1, "token_str": "x"}]), "not 0, 1, 2"),
        (lambda c: c.update(special_tokens=[1]), "not objects"),
        (lambda c: c["config"].update(default_num_special_tokens=3), "is 3"),
    ],
)
def test_damaged_tekken(change, message):
    content = tekken_file(random_ranks(0))
    change(content)
    with pytest.raises(FormatError, match=message):
        tekken.from_json(content, "x")


@pytest.mark.parametrize(
    ("vocab", "merges", "message"),
    [
        ({}, b"a b\n", "has no token 'a', which merge 1"),
        (None, b"#version: 0.2\nl o\nlo zz\n", "has no token 'zz'|has no token 'lo'"),
        (None, b"a b c\n", "line 1: 'a b c' is not two tokens"),
        (None, b"a \n", "line 1"),
        (None, b"\xff b\n", "line 1: not valid UTF-8"),
        ({"a</w>": 256, "b": 257, "ba</w>": 258}, b"b a</w>\n", "mark ends of words"),
        ({"▁x": 256}, b"", "not a byte-level vocabulary"),
        ({"x": 99999}, b"", "ids from 0 to 99999"),
        ({"xx": 3}, b"", "have the same id 3"),
    ],
)
def test_damaged_gpt2_files(vocab, merges, message):
    ids = {gpt2_files.spell(bytes([b])): b for b in range(256)}
    if vocab == {}:
        ids = {"z": 0}
    else:
        ids.update(vocab or {})
    with pytest.raises(FormatError, match=message):
        gpt2_files.read_files(json.dumps(ids).encode(), merges, "x")
    with pytest.raises(FormatError, match="is there twice"):
        gpt2_files.read_files(b'{"a": 0, "a": 1}', b"", "x")
    with pytest.raises(FormatError, match="merge of line 1 once more"):
        gpt2_files.read_merges(b"a b\na b\n", "x")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"l o\nlo w</w>\n", "version 0.1"),
        (b"#version: 0.3\nl o\n", "version 0.3"),
        (b"t h 120\nth e</w> 100\n", "fastBPE"),
        (b"#version: 0.2\n", "no merges"),
        (b"#version: 0.2\nlo w</w>\nl o\n", "no merge before it makes 'lo'"),
        (b"#version: 0.2\nl </w>\n", "not at the end"),
        (b"#version: 0.2\nl</w> o\n", "not at the end"),
        (b"#version: 0.2\nl o\nl o\n", "once more"),
        (b"#version: 0.2\nl o w\n", "line 2"),
    ],
)
def test_damaged_codes(raw, message):
    with pytest.raises(FormatError, match=message):
        subword_nmt.read_codes(raw, "x")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["[UNK]", "a", "a"], "line 3: the piece 'a' of line 2 once more"),
        (["[UNK]", "a", "", "b"], "line 3"),
        (["[UNK]", "a "], "line 2"),
        (["a", "b"], r"no line is the unknown token \[UNK\]"),
    ],
)
def test_damaged_vocab_txt(lines, message):
    with pytest.raises(FormatError, match=message):
        wordpiece_vocab.read_vocabulary("".join(f"{line}\n" for line in lines).encode(), "x")
    with pytest.raises(FormatError, match="line 2: not valid UTF-8"):
        wordpiece_vocab.read_vocabulary(b"[UNK]\n\xff\n", "x")
