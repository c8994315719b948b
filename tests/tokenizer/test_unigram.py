"""The Unigram model and its encoder against brute force, SentencePiece and Hugging Face tokenizers."""

import io
import itertools
import random
import time

import numpy as np
import pytest
from benchmarks.corpora import read_texts
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, FormatError
from shardpiece.text.documents import Documents, Words
from shardpiece.text.engine import TextEngine
from shardpiece.tokenizer import viterbi_kernels
from shardpiece.tokenizer.trie_kernels import build_trie
from shardpiece.tokenizer.unigram import UNKNOWN_PENALTY, UnigramEncoder, UnigramModel
from tests.conftest import TEXTS

CORPUS = [line for text in TEXTS for line in (text or "").split("\n")]


def model_of(scores: dict[str, float], **options) -> UnigramModel:
    vocab = (None, *(piece.encode() for piece in scores))
    return UnigramModel(vocab, np.array([0.0, *scores.values()]), **{"unk_id": 0, **options})


def words_of(*words: str) -> Words:
    documents = Documents.from_strings(list(words))
    kept = np.diff(documents.offsets) > 0
    return Words(documents.data, 0, documents.offsets[1:][kept], np.cumsum(kept))


def encode(model: UnigramModel, *words: str, encoder=None) -> list[list[int]]:
    tokens, offsets = (encoder or model.encoder()).encode(words_of(*words))
    return [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def with_bytes(scores: dict[str, float], bytes_present=range(256)) -> UnigramModel:
    vocab = [None, *(b"<0x%02X>" % b for b in bytes_present), *(piece.encode() for piece in scores)]
    byte_ids = np.full(256, -1, np.int32)
    byte_ids[list(bytes_present)] = np.arange(1, len(bytes_present) + 1)
    values = [0.0] * (1 + len(bytes_present)) + list(scores.values())
    return UnigramModel(tuple(vocab), np.array(values), 0, byte_ids)


# -- the trie ----------------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.sets(st.lists(st.integers(0, 5), min_size=1, max_size=6).map(tuple)), st.sampled_from([6, 7, 300]))
def test_trie_has_the_strings_and_their_prefixes(strings, n_symbols):
    _check_trie(sorted(strings), n_symbols)


@pytest.mark.parametrize(("n_symbols", "count", "power"), [(256, 2000, 3), (5000, 3000, 2), (40, 5000, 1)])
def test_large_tries(n_symbols, count, power):
    rng = random.Random(n_symbols)
    strings = {tuple(int(rng.random() ** power * n_symbols) for _ in range(rng.randint(1, 6))) for _ in range(count)}
    slots = _check_trie(sorted(strings), n_symbols)
    nodes = len({s[:n] for s in strings for n in range(1, len(s) + 1)})
    assert slots < 1.1 * nodes + 3 * n_symbols + 64


def _check_trie(strings, n_symbols) -> int:
    offsets = np.cumsum([0, *map(len, strings)], dtype=np.int64)
    nodes, node_of = build_trie(np.array([c for s in strings for c in s], np.int32), offsets, n_symbols)
    slots = {(): 0}
    children: dict[tuple, list[int]] = {(): []}
    for prefix in sorted({s[:n] for s in strings for n in range(1, len(s) + 1)}):
        children[prefix[:-1]].append(prefix[-1])
        children[prefix] = []
    for prefix in sorted(children, key=len):
        base = nodes["base"][slots[prefix]]
        found = np.flatnonzero(nodes["check"][base : base + n_symbols] == slots[prefix])
        assert found.tolist() == children[prefix]
        slots.update({(*prefix, c): int(base) + c for c in children[prefix]})
    assert [slots[s] for s in strings] == node_of.tolist()
    return len(nodes)


# -- the encoder -------------------------------------------------------------------------------------------------------


def best_scores(word: str, scores: dict[str, float], unknown: float) -> dict[tuple, float]:
    """Score of every segmentation of a word; unknown characters are pieces of their own."""
    paths = {(): 0.0}
    for i in range(len(word)):
        for path, score in [(p, s) for p, s in paths.items() if sum(map(len, p)) == i]:
            for n in range(1, len(word) - i + 1):
                piece = word[i : i + n]
                if piece in scores:
                    paths[(*path, piece)] = score + scores[piece]
                elif n == 1:
                    paths[(*path, piece)] = score + unknown
    return {p: s for p, s in paths.items() if sum(map(len, p)) == len(word)}


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text("abé漢", min_size=1, max_size=4), st.floats(-20, -0.5), min_size=1),
    st.lists(st.text("abé漢x", max_size=7), max_size=5),
)
def test_finds_the_best_of_all_segmentations(scores, words):
    model = model_of(scores)
    ids = {piece: i for i, piece in enumerate(scores, 1)}
    for word, found in zip(words, encode(model, *words), strict=True):
        paths = best_scores(word, scores, model.unknown_score)
        best = max(paths.values())
        near = [p for p, s in paths.items() if s >= best - 1e-9]
        spelled = [[ids.get(piece, 0) for piece in path] for path in near]
        fused = [[t for i, t in enumerate(path) if t or not i or path[i - 1]] for path in spelled]
        assert found in fused


def test_of_equal_segmentations_the_longest_last_piece_wins():
    model = model_of({"a": -1.0, "b": -1.0, "c": -1.0, "ab": -2.0, "bc": -2.0})
    assert encode(model, "abc") == [[1, 5]]
    assert encode(model_of({"a": -1.0, "aa": -2.0, "aaa": -3.0}), "aaaa") == [[1, 3]]


def test_unknown_characters_fuse_within_a_word():
    model = model_of({"a": -1.0, "▁": -2.0})
    assert model.unknown_score == -2.0 - UNKNOWN_PENALTY
    assert encode(model, "axya漢", "xx", "") == [[1, 0, 1, 0], [0], []]


def test_byte_fallback_spells_each_unknown_character():
    model = with_bytes({"a": -1.0, "<": -3.0})
    fallback = {b: i for i, b in enumerate(range(256), 1)}
    assert encode(model, "a漢x") == [[257, *(fallback[b] for b in "漢x".encode())]]
    # A byte piece's name in text is text.
    assert encode(model, "<0x0A>")[0][0] == 258
    assert [model.pieces()[fallback[10]], model.pieces()[257]] == [b"\x0a", b"a"]
    partial = with_bytes({"a": -1.0}, bytes_present=range(128))
    assert encode(partial, "xya漢漢x") == [[1 + ord("x"), 1 + ord("y"), 129, 0]]


def test_a_character_without_any_token_is_an_error():
    model = model_of({"a": -1.0}, unk_id=None)
    assert encode(model, "aa") == [[1, 1]]
    with pytest.raises(ConfigError, match="no unk token"):
        encode(model, "aa", "ab")


def test_damaged_utf8_does_not_run_out_of_the_word():
    model = with_bytes({"a": -1.0})
    data = np.frombuffer(b"a\xe6a\xf0", np.uint8)
    words = Words(data, 0, np.array([2, 4]), np.array([1, 2]))
    tokens, offsets = model.encoder().encode(words)
    assert tokens.tolist() == [257, 1 + 0xE6, 257, 1 + 0xF0]
    assert offsets.tolist() == [0, 2, 4]


@pytest.mark.parametrize("length", [254, 255, 256, 257, 258, 5000])
def test_cached_and_long_words_meet(length):
    scores = {"a": -3.0, "aa": -5.0, "aaaaaaa": -9.0, "b": -2.0}
    model = model_of(scores)
    word = "".join(random.Random(length).choice("aaaaab") for _ in range(length))
    found, again = encode(model, word, word)
    assert found == again
    total = [0.0] + [-np.inf] * length
    for j in range(1, length + 1):
        total[j] = max(total[j - len(p)] + s for p, s in scores.items() if word[:j].endswith(p))
    assert sum(list(scores.values())[i - 1] for i in found) == pytest.approx(total[-1])


def test_a_megabyte_long_word_is_linear():
    model = model_of({"a" * n: -1.0 - n / 10 for n in range(1, 17)})
    encode(model, "a" * 1000)
    times = []
    for size in (1_000_000, 4_000_000):
        began = time.perf_counter()
        (tokens,) = encode(model, "a" * size)
        times.append(time.perf_counter() - began)
        assert len(tokens) == size // 16
    assert times[1] < 4 * times[0] * 4


def test_the_cache_is_bounded_and_does_not_change_results():
    model = model_of({**dict.fromkeys("abcdefghijklmnopqrstuvwxyz0123456789", -5.0), "word": -4.0, "other": -6.0})
    small = UnigramEncoder(model, cache_bytes=4096)
    rng = random.Random(5)
    words = ["word" + "".join(rng.choices("abcdef", k=rng.randint(1, 30))) for _ in range(2000)] * 2
    large = model.encoder()
    assert encode(model, *words, encoder=small) == encode(model, *words, encoder=large)
    misses = [encoder.state[viterbi_kernels.STATE_MISSES] for encoder in (small, large)]
    assert misses[0] > misses[1]


def test_models_that_cannot_work_are_refused():
    scores = np.zeros(2)
    with pytest.raises(FormatError, match="same byte string"):
        UnigramModel((b"a", b"a"), scores)
    with pytest.raises(FormatError, match="scores"):
        UnigramModel((b"a",), scores)
    with pytest.raises(FormatError, match="0 bytes"):
        UnigramModel((b"a", b""), scores)
    with pytest.raises(FormatError, match="is nan"):
        UnigramModel((b"a", b"b"), np.array([0.0, np.nan]))
    with pytest.raises(FormatError, match="outside the vocabulary"):
        UnigramModel((b"a", b"b"), scores, unk_id=2)
    with pytest.raises(FormatError, match="256 ids"):
        UnigramModel((b"a", b"b"), scores, byte_ids=np.zeros(4, np.int32))


def test_identity_tells_models_apart():
    models = [
        model_of({"a": -1.0, "b": -2.0}),
        model_of({"a": -1.0, "b": -2.5}),
        model_of({"b": -1.0, "a": -2.0}),
        model_of({"a": -1.0, "b": -2.0}, unk_id=None),
        with_bytes({"a": -1.0, "b": -2.0}),
    ]
    assert len({b"|".join(model.identity()) for model in models}) == len(models)
    same = UnigramModel(models[0].vocab, np.array([7.0, -1.0, -2.0]), 0)  # the score of no piece does not count
    assert list(same.identity()) == list(models[0].identity())


# -- the peers ---------------------------------------------------------------------------------------------------------


def from_sentencepiece(peer, arithmetic: str = "float32") -> UnigramModel:
    vocab, scores, byte_ids, matched, user_defined = [], [], np.full(256, -1, np.int32), [], []
    for i in range(len(peer)):
        piece = peer.id_to_piece(i)
        if peer.is_byte(i):
            byte_ids[int(piece[3:5], 16)] = i
        reserved = peer.is_control(i) or peer.is_unknown(i) or peer.is_unused(i)
        vocab.append(None if reserved else piece.encode())
        scores.append(peer.get_score(i))
        matched.append(not reserved and not peer.is_byte(i))
    return UnigramModel(
        tuple(vocab), np.array(scores), peer.unk_id(), byte_ids if byte_ids.max() >= 0 else None, arithmetic,
        np.array(matched), tuple(user_defined),
    )  # fmt: skip


def encode_lines(model: UnigramModel, lines: list[str]) -> list[list[int]]:
    tokens, offsets = model.encoder().encode(TextEngine("metaspace_never").split(Documents.from_strings(lines)))
    return [tokens[a:b].tolist() for a, b in itertools.pairwise(offsets.tolist())]


def differences(model: UnigramModel, peer, texts: list[str]) -> list[str]:
    """The texts with other ids than SentencePiece's, sums and rounding as there."""
    found = encode_lines(model, [peer.normalize(text) for text in texts])
    return [text for text, ours, theirs in zip(texts, found, peer.encode(texts), strict=True) if ours != theirs]


@pytest.mark.parametrize("byte_fallback", [False, True])
def test_ids_are_sentencepieces(byte_fallback):
    spm = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in CORPUS if len(line) < 400] * 3), model_writer=model, model_type="unigram",
        vocab_size=650 if byte_fallback else 394, character_coverage=0.98, byte_fallback=byte_fallback,
        hard_vocab_limit=False, num_threads=1, minloglevel=2,
    )  # fmt: skip
    peer = spm.SentencePieceProcessor(model_proto=model.getvalue())
    texts = [*CORPUS, "unknown ☃☃ and ☃ again", "☃", "a☃b ☃☃☃ c", "\u0301", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 漢字漢字 🦊🦊"]
    ours = from_sentencepiece(peer)
    long = " ".join(random.Random(5).choices(texts, k=3000))  # where sums pass what SentencePiece lets them reach
    assert differences(ours, peer, [*texts, long, "a" * 100_000]) == []


@pytest.mark.parametrize("name", ["laser50k-sp/laser_50k.model", "pegasus-unigram/pegasus.model"])
def test_published_models_on_real_text(shared, name):
    spm = pytest.importorskip("sentencepiece")
    path = shared / "vocabs" / name
    if not path.exists():
        pytest.skip(f"the shared vocabularies lack {path}")
    peer = spm.SentencePieceProcessor(model_file=str(path))
    model = from_sentencepiece(peer)
    for group in ("web_multilingual", "parallel", "books", "code"):
        texts = read_texts(sorted((shared / "corpus" / group).glob("*.parquet")), 0.5)
        lines = [line for text in texts for line in text.split("\n") if line.strip()]
        assert differences(model, peer, [*texts, *lines, " ".join(texts)]) == []


def test_ids_are_those_of_hugging_face(shared):
    tokenizers = pytest.importorskip("tokenizers")
    spm = pytest.importorskip("sentencepiece")
    path = shared / "vocabs" / "laser50k-sp" / "laser_50k.model"
    if not path.exists():
        pytest.skip(f"the shared vocabularies lack {path}")
    ours = from_sentencepiece(spm.SentencePieceProcessor(model_file=str(path)), "float64")
    vocab = [
        ((p or b"\0<none %d>" % i).decode(), float(s))
        for i, (p, s) in enumerate(zip(ours.vocab, ours.scores, strict=True))
    ]
    lowest = min(score for score, piece in zip(ours.scores.tolist(), ours.vocab, strict=True) if piece is not None)
    assert lowest <= 0.0
    peer = tokenizers.Tokenizer(tokenizers.models.Unigram(vocab, ours.unk_id, False))
    texts = read_texts(sorted((shared / "corpus" / "web_multilingual").glob("*.parquet")), 0.3)
    words = sorted({f"▁{word}" for text in texts for word in text.split()})
    expected = [encoding.ids for encoding in peer.encode_batch(words, add_special_tokens=False)]
    found = encode(ours, *words)
    differ = [(w, a, b) for w, a, b in zip(words, found, expected, strict=True) if a != b]
    assert not differ
