"""The cache of raw words gives what the way without it gives, and SentencePiece's library."""

import dataclasses
import itertools
import random
import re

import numpy as np
import pytest
from benchmarks.corpora import read_texts
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.text.normalization.charsmap import Charsmap
from shardpiece.text.normalizers import Normalizer, normalizer
from shardpiece.tokenizer import word_cache_kernels
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.formats import sentencepiece as f
from shardpiece.tokenizer.formats import sentencepiece_tokenizer
from shardpiece.tokenizer.raw_words import RawWordEncoder
from shardpiece.tokenizer.tokenizer import AddedToken, Tokenizer
from shardpiece.tokenizer.word_cache import WordCache
from tests.tokenizer.test_bpe_models import BYTE_PIECES
from tests.tokenizer.test_sentencepiece_format import CORPUS, processor, trained
from tests.tokenizer.test_sentencepiece_tokenizer import HOSTILE, MODELS, model_path, published

KEPT = {"remove_extra_whitespaces": False, "byte_fallback": True, "normalization_rule_name": "identity"}
TRAINED = [
    ("unigram", {}),
    ("unigram", {"byte_fallback": True, "user_defined_symbols": "<sep>,12,a.b"}),
    ("unigram", {"character_coverage": 0.98, "normalization_rule_name": "identity"}),
    ("bpe", {}),
    ("bpe", {"byte_fallback": True, "user_defined_symbols": "<sep>,12,a.b"}),
    ("bpe", {"character_coverage": 0.98}),
    ("bpe", KEPT),
    ("bpe", {**KEPT, "add_dummy_prefix": False}),
    ("bpe", {**KEPT, "user_defined_symbols": "<sep>,12", "allow_whitespace_only_pieces": True}),
]
ATOMS = [
    *"ab▁ 12<.,-\n\t\r\0\x01\x7f", " ", " ", "  ", "   ", "\n\n", " \n", " \t ", "the", "low", "lower", "runs,", "<sep>", "☃", "▁▁",
    "\u3000", "\u00a0", "\u2028", "\u200b", "e\u0301", "\u0301", " \u0301", "=\u0338", ".\u0308", "ﬁ", "½", "漢字", "ﷺ", "日本語" * 8, "x" * 20,
    "Привет мир", "a.b", "It's", "(a)b", "A",
]  # fmt: skip
BATCHES = st.lists(st.lists(st.sampled_from(ATOMS), max_size=25).map("".join) | st.text(max_size=12), max_size=6)


def loaded(kind: str, options: dict):
    raw = trained(kind, **options)
    return sentencepiece_tokenizer.from_bytes(raw, "tiny.model"), processor(raw)


def without(tokenizer):
    """The tokenizer, with no cache of raw words."""
    copy = dataclasses.replace(tokenizer)
    object.__setattr__(copy, "_encoder", copy.model.encoder())
    return copy


def ids(tokenizer, texts: list[str], **options) -> list[list[int]]:
    tokens, offsets = tokenizer.encode_documents(Documents.from_strings(texts), **options)
    return [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


@pytest.mark.parametrize(("kind", "options"), TRAINED, ids=str)
def test_any_text_is_encoded_as_by_the_library(kind, options):
    tokenizer, peer = loaded(kind, options)
    assert tokenizer._raw_words is not None
    tiny = dataclasses.replace(tokenizer)
    tiny.use_cache(1)

    @given(BATCHES)
    @settings(max_examples=60, deadline=None, derandomize=True)
    def check(texts):
        expected = peer.encode(texts)
        assert ids(tokenizer, texts) == expected
        assert ids(tiny, texts) == expected

    check()
    texts = [*HOSTILE, *CORPUS, ""]
    rng = random.Random(5)
    texts += [" ".join(rng.choices(ATOMS, k=rng.randint(1, 400))) for _ in range(20)]
    for _ in range(2):
        assert ids(tokenizer, texts) == ids(tiny, texts) == peer.encode(texts)


def test_sums_of_long_documents():
    # Words whose best two segmentations are about as good as each other, past the sum where the library begins anew.
    rng = random.Random(2)
    pieces = [b"<unk>", "▁".encode(), *(bytes([c]) for c in b"abcd"), "▁a".encode(), "▁b".encode()]
    pieces += sorted({"".join(rng.choices("abcd", k=k)).encode() for k in (2, 2, 3) for _ in range(20)})
    scores = np.array([0, *(-8 - rng.randrange(64) / 8 + rng.choice((0, 1e-3, 3e-2)) for _ in pieces[1:])], np.float32)
    types = [f.UNKNOWN, *[f.NORMAL] * (len(pieces) - 1)]
    raw = f.write_model(
        f.SentencePieceFile(pieces, scores, types, f.TrainerSpec(model_type="unigram"), f.NormalizerSpec())
    )
    tokenizer, peer = sentencepiece_tokenizer.from_bytes(raw, "sums.model"), processor(raw)
    words = ["".join(rng.choices("abcdx", [9, 9, 9, 9, 1], k=rng.randint(1, 9))) for _ in range(3000)]
    texts = [" ".join(rng.choices(words, k=n)) for n in (1, 50, 5000, 9000)]
    assert tokenizer._raw_words is not None
    for _ in range(2):
        assert ids(tokenizer, texts) == peer.encode(texts)


@pytest.mark.parametrize(("kind", "options"), [TRAINED[1], TRAINED[4], TRAINED[-1]], ids=str)
@pytest.mark.parametrize("in_text", ["text", "token"])
def test_added_tokens(kind, options, in_text):
    tokenizer, _ = loaded(kind, options)
    more = max(token.id for token in tokenizer.added_tokens) + len(tokenizer.model)
    added = [*tokenizer.added_tokens, AddedToken("<x>", more, special=False), AddedToken("low ", more + 1, rstrip=True)]
    tokenizer = dataclasses.replace(tokenizer, added_tokens=added)
    assert tokenizer._raw_words is not None
    rng = random.Random(4)
    atoms = [*ATOMS, "<x>", "low ", "<s>", "<unk>"]
    texts = ["".join(rng.choices(atoms, k=rng.randint(0, 40))) for _ in range(300)]
    expected = ids(without(tokenizer), texts, special_tokens_in_text=in_text)
    for _ in range(2):
        assert ids(tokenizer, texts, special_tokens_in_text=in_text) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"add_dummy_prefix": False},
        {"treat_whitespace_as_suffix": True},
        {"user_defined_symbols": "<a b>"},
        {"user_defined_symbols": "a▁b"},
        {"split_by_whitespace": False, "remove_extra_whitespaces": False},
    ],
    ids=str,
)
def test_where_it_is_not_used(options):
    for kind in ("unigram", "bpe"):
        tokenizer, peer = loaded(kind, options)
        assert tokenizer._raw_words is None
        assert ids(tokenizer, CORPUS) == peer.encode(CORPUS)


@pytest.mark.parametrize(
    ("rules", "used"),
    [({"x": "y"}, True), ({"x y": "z"}, False), ({"x": "▁"}, False), ({"x": "y  "}, False), ({" ": "_"}, False)],
)
def test_rules_decide(rules, used):
    tokenizer, _ = loaded("bpe", {})
    engine = type(tokenizer.engine)(
        tokenizer.engine.pretokenizer, Normalizer.sentencepiece(Charsmap.from_mapping(rules))
    )
    made = dataclasses.replace(tokenizer, engine=engine, special_tokens={}, added_tokens=tokenizer.added_tokens)
    assert (made._raw_words is not None) == used
    texts = ["x y", "xx y\nx ", " x  y x", "y x"]
    assert ids(made, texts) == ids(without(made), texts)


def test_rings_hold_the_longest_word():
    assert len(WordCache(1).ring_tokens) >= word_cache_kernels.LONG
    assert len(WordCache(1).ring_bytes) >= word_cache_kernels.LONG


def test_other_tokenizers_have_none():
    tokenizer, _ = loaded("char", {})
    engine = type(tokenizer.engine)("gpt2")
    assert RawWordEncoder.of(engine, tokenizer.model, tokenizer.encoder) is None


def marking(seed: int, prefix: bool, split: bool, tied: bool) -> Tokenizer:
    """As tokenizer.json files have what SentencePiece made: spaces become ▁, documents are one word. Merges at random."""
    rng = random.Random(seed)
    vocab = [c.encode() for c in "ab▁c\n."] + BYTE_PIECES
    pool, pairs = list(range(6)), []
    for _ in range(60):
        a, b = rng.choice(pool), rng.choice(pool)
        joined = vocab[a] + vocab[b]
        crosses = re.search("[^▁]▁", joined.decode())
        if crosses and not (tied and crosses.group()[0] == "a"):
            continue
        if joined not in vocab:
            pool.append(len(vocab))
            vocab.append(joined)
        pairs.append((a, b))
    model = BPEModel(vocab, np.array(pairs, np.int32), "characters", byte_fallback=True)
    steps = [{"type": "prepend", "text": "▁"}] * prefix + [{"type": "replace", "literal": " ", "content": "▁"}]
    splits = [{"type": "split", "pattern": " ", "behavior": "merged_with_previous"}] if split else "none"
    return Tokenizer(TextEngine(splits, normalizer(steps)), model)


@pytest.mark.parametrize(("prefix", "split", "tied"), list(itertools.product([False, True], repeat=3)))
def test_spaces_marked_and_no_pretokenizer(prefix, split, tied):
    @given(
        st.integers(0, 10**6), st.lists(st.text("ab c\n.é▁x漢", max_size=60) | st.text("ab  ", max_size=60), max_size=6)
    )
    @settings(max_examples=30, deadline=None, derandomize=True)
    def check(seed, texts):
        tokenizer = marking(seed, prefix, split, tied)
        assert tokenizer._raw_words is not None
        expected = ids(without(tokenizer), texts)
        for _ in range(2):
            assert ids(tokenizer, texts) == expected

    check()


def test_words_that_are_tokens_whatever_merges_say_are_not_cut():
    tokenizer = marking(1, True, False, False)
    model = dataclasses.replace(tokenizer.model, ignore_merges=True)
    assert Tokenizer(tokenizer.engine, model)._raw_words is None


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_published_models(shared, name):
    tokenizer, peer = published(model_path(shared, name))
    assert tokenizer._raw_words is not None
    rng = random.Random(1)
    texts = ["".join(rng.choices(ATOMS, k=rng.randint(0, 60))) for _ in range(5000)]
    for group in ("web_multilingual", "parallel", "books", "code"):
        texts += read_texts(sorted((shared / "corpus" / group).glob("*.parquet")), 0.5)
    texts.append(" ".join(texts[:3000]))
    expected = peer.encode(texts)
    for cache_bytes in (64 << 20, 1):
        tokenizer.use_cache(cache_bytes)
        for _ in range(2):
            assert ids(tokenizer, texts) == expected
