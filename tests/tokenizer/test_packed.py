"""The form in which workers get a tokenizer: what comes out is what went in, whatever the model."""

import numpy as np
import pytest

import shardpiece
from shardpiece.errors import FormatError
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer import packed
from shardpiece.tokenizer.added_tokens import AddedToken
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.decoder import Decoder
from shardpiece.tokenizer.model import byte_piece
from shardpiece.tokenizer.template import Template
from shardpiece.tokenizer.tokenizer import Tokenizer
from shardpiece.tokenizer.unigram import UnigramModel
from shardpiece.tokenizer.wordlevel import WordLevelModel
from shardpiece.tokenizer.wordpiece import WordPieceModel
from tests.conftest import TEXTS

CORPUS = [*(text or "" for text in TEXTS), "a <s> b [x] low ▁lower", "b" * 700]
BYTES = [bytes([b]) for b in range(256)]
PIECES = ["▁".encode(), b"l", b"o", b"w", b"lo", b"low"]


def byte_level() -> Tokenizer:
    model = BPEModel([*BYTES, b"lo", b"low", b" low"], np.array([[108, 111], [256, 119], [32, 257]]))
    tokens = (AddedToken("<s>", 259), AddedToken("[x]", 260, special=False, lstrip=True))
    return Tokenizer(TextEngine("gpt2", "nfc"), model, added_tokens=tokens, template=Template((259,), (260,)),
                     decoder=Decoder(({"type": "byte_level"},)), provenance={"of": ["a", 1, None]})  # fmt: skip


def characters() -> Tokenizer:
    pieces = [*map(byte_piece, range(256)), *PIECES]
    merges = np.array([[257, 258], [260, 259]])
    return Tokenizer(TextEngine("metaspace"), BPEModel(pieces, merges, "characters", byte_fallback=True), ["<s>"])


def unigram() -> Tokenizer:
    scores = -np.arange(1.0, 8.0)
    return Tokenizer(TextEngine("metaspace", "nmt_nfkc"), UnigramModel((b"<unk>", *PIECES), scores, 0), ["<s>"])


def wordpiece() -> Tokenizer:
    return Tokenizer(TextEngine("bert", "bert"), WordPieceModel((b"[UNK]", b"low", b"l", b"##ow", b"##er"), 0), ["<s>"])


def words() -> Tokenizer:
    return Tokenizer(TextEngine("whitespace_split"), WordLevelModel((None, b"low", b"lower"), 0), {"<s>": 0})


@pytest.mark.parametrize("make", [byte_level, characters, unigram, wordpiece, words])
def test_what_comes_out_is_what_went_in(make):
    given = make()
    for cache_bytes in (None, 1 << 20):
        got = packed.unpack(packed.pack(given), cache_bytes)
        assert got.fingerprint == given.fingerprint
        assert list(got.model.identity()) == list(given.model.identity())
        assert got.engine.fingerprint == given.engine.fingerprint
        assert (got.special_tokens, got.added_tokens, got.template, got.provenance, got.vocab_size) == (
            given.special_tokens, given.added_tokens, given.template, given.provenance, given.vocab_size,
        )  # fmt: skip
        for in_text in ("text", "token"):
            for text in CORPUS:
                ids = given.encode(text, in_text)
                assert got.encode(text, in_text) == ids
                assert got.decode(ids) == given.decode(ids)


def test_kernels_are_not_compiled_again_for_what_comes_out():
    given = byte_level()
    given.encode("low lower")
    got = packed.unpack(packed.pack(given))

    def writable(tokenizer):
        tables = tokenizer.model.tables
        return {name: array.flags.writeable for name, array in vars(tables).items() if isinstance(array, np.ndarray)}

    assert writable(got) == writable(given)


def test_a_trained_tokenizer(tmp_path):
    given = shardpiece.train_bpe(shardpiece.WordTable.from_texts(CORPUS, "cl100k_base"), 400, special_tokens=["<s>"])
    got = packed.unpack(packed.pack(given))
    assert got == given or got.fingerprint == given.fingerprint
    assert [got.encode(text) for text in CORPUS] == [given.encode(text) for text in CORPUS]


@pytest.mark.parametrize("cut", [0, 10, 200, -1])
def test_damage_is_named(cut):
    raw = packed.pack(words())
    with pytest.raises(FormatError, match="not a packed tokenizer"):
        packed.unpack(raw[:cut])


def test_what_has_no_packed_form_is_refused():
    given = words()
    given.provenance["when"] = object()
    with pytest.raises(TypeError, match="cannot be packed"):
        packed.pack(given)
