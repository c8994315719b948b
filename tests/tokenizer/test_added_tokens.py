"""Added tokens in text, against Hugging Face's library and against regular expressions."""

import json
import random

import pytest

import shardpiece
from shardpiece.errors import DocumentError, FormatError
from shardpiece.text.documents import Documents
from shardpiece.tokenizer import artifact
from shardpiece.tokenizer.added_tokens import AddedToken
from shardpiece.tokenizer.formats.huggingface_read import read_tokenizer_json
from shardpiece.tokenizer.template import Template
from tests.tokenizer.test_encode import random_model

FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


def tokenizer_json(tokens: list[dict], normalizer=None, pre_tokenizer=None) -> bytes:
    vocab = {c: i for i, c in enumerate("?abcBCé <>s.\n\t12")}
    added = [
        {"id": len(vocab) + i, **dict.fromkeys(FLAGS, False), **token} for i, token in enumerate(tokens)
    ]  # fmt: skip
    model = {"type": "BPE", "dropout": None, "unk_token": "?", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}  # fmt: skip
    content = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
               "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None, "model": model}  # fmt: skip
    return json.dumps(content).encode()


def random_tokens(rng: random.Random) -> list[dict]:
    texts = rng.sample(
        ["<s>", "<s>a", "ab", "A", "É", "  ", "\n\n", "日", "b<", "s>", " a", "a.", "abc"], rng.randint(1, 6)
    )
    return [{"content": text, **{flag: rng.random() < 0.3 for flag in FLAGS}} for text in texts]


def test_added_tokens_are_found_as_the_library_finds_them():
    tokenizers = pytest.importorskip("tokenizers")
    rng = random.Random(4)
    texts = ["".join(rng.choice("aabbcABéÉ  <s>.\n\t1²_日") for _ in range(rng.randint(0, 14))) for _ in range(150)]
    for _ in range(40):
        raw = tokenizer_json(
            random_tokens(rng), rng.choice([None, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "a"}])
        )
        ours, peer = read_tokenizer_json(raw, "made"), tokenizers.Tokenizer.from_str(raw.decode())
        for in_text in ("text", "token"):
            peer.encode_special_tokens = in_text == "text"
            encoded = ours.encode_batch(texts, in_text).to_pylist()
            for text, ids in zip(texts, encoded, strict=True):
                assert ids == peer.encode(text).ids, (raw.decode(), text, in_text)
        ids = peer.encode("".join(texts)).ids
        assert all(ours.decode(ids, skip) == peer.decode(ids, skip_special_tokens=skip) for skip in (False, True))


def test_a_thousand_tokens_in_long_text():
    tokens = tuple(AddedToken(f"<unused{i}>", 300 + i, special=i % 2 == 0) for i in range(1000))
    text = "".join(f"<unused{i % 1003}> x<unused {'y' * (i % 70)}" for i in range(2000))
    ours = shardpiece.Tokenizer("none", random_model(1), added_tokens=tokens)
    [found] = ours.encode_batch([text], "token").to_pylist()
    assert [i for i in found if i >= 300] == [300 + i % 1003 for i in range(2000) if i % 1003 < 1000]
    assert ours.decode_bytes(found) == text.encode()


def test_errors_and_sampling_look_at_special_tokens():
    raw = tokenizer_json([{"content": "ab", "special": True}, {"content": "A", "special": True, "normalized": True}, {"content": "yy"}], {"type": "Lowercase"})  # fmt: skip
    ours = read_tokenizer_json(raw, "made")
    assert ours.encode("xyy", "error") == ours.encode("xyy", "text")
    with pytest.raises(DocumentError, match="'ab' at byte 3"):
        ours.encode("é ab", "error")
    with pytest.raises(DocumentError, match="'A' once it is normalized") as caught:
        ours.encode_documents(Documents.from_strings(["c", "xa"]), "error")
    assert caught.value.index == 1


def test_what_a_tokenizer_holds(tmp_path):
    tokens = (AddedToken("<b>", 302, rstrip=True), AddedToken("word", 301, special=False, single_word=True))
    ours = shardpiece.Tokenizer(
        "gpt2", random_model(2), {"<a>": 300}, added_tokens=tokens, template=Template((300,), (302, 300))
    )
    assert [token.id for token in ours.added_tokens] == [300, 301, 302]
    assert ours.special_tokens == {"<a>": 300, "<b>": 302}
    ids = ours.encode("a word<b>  !", "token", add_special_tokens=True)
    assert ids[0] == 300
    assert ids[-2:] == [302, 300]
    assert {301, 302} < set(ids[1:-2])
    assert ours.decode(ids) == "<a>a word<b>!<b><a>"
    assert ours.decode(ids, skip_special_tokens=True) == "a word!"
    both = ours.encode_batch(["", None, "x"], add_special_tokens=True)
    assert both.to_pylist()[:2] == [[300, 302, 300], None]
    artifact.save(ours, str(tmp_path))
    again = shardpiece.load(str(tmp_path))
    assert again.fingerprint == ours.fingerprint
    assert again.added_tokens == ours.added_tokens
    assert again.template == ours.template
    other = shardpiece.Tokenizer("gpt2", ours.model, {"<a>": 300}, added_tokens=tokens)
    assert other.fingerprint != ours.fingerprint


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([AddedToken("<a>", 300), AddedToken("<b>", 300)], "another token's"),
        ([AddedToken("<a>", 300), AddedToken("<a>", 301)], "listed twice"),
        ([AddedToken("<a>", 5)], "another token's"),
        ([AddedToken("<s>", 300, special=False)], "as another one"),
    ],
)
def test_tokens_that_do_not_go_together(tokens, why):
    with pytest.raises(FormatError, match=why):
        shardpiece.Tokenizer("gpt2", random_model(2), {"<s>": 301}, added_tokens=tokens)


def test_streams_give_the_decoded_text():
    ours = shardpiece.train_bpe(shardpiece.WordTable.from_texts(["naïve 日本語 👩‍👩‍👧"] * 3, "gpt2"), 270)
    for text in ("naïve 日本語 👩‍👩‍👧 x", "", "\ufffd"):
        stream = ours.decode_stream()
        parts = [stream.push(i) for i in ours.encode(text)]
        assert "".join(parts) + stream.finish() == text
    stream = ours.decode_stream()
    assert [stream.push(i) for i in ours.encode("日")[:-1]][-1] == ""
    assert stream.finish() == "\ufffd"
