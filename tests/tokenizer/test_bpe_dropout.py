"""BPE-dropout against every course that the published process can take, and against encoding without it."""

import itertools
import time
from collections import Counter
from functools import cache

import numpy as np
import pytest

import shardpiece
from shardpiece.text.documents import Documents, Words
from shardpiece.tokenizer.bpe import BPEModel
from shardpiece.tokenizer.bpe_dropout import BPEDropout
from shardpiece.tokenizer.sampling import Sampling, document_keys
from shardpiece.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.test_wordlevel import of_words


def byte_model(*merges: bytes, **settings) -> BPEModel:
    """A model of bytes with merges written as b"a b"."""
    pairs = [line.split(b" ") for line in merges]
    vocab = [bytes([b]) for b in range(256)] + list(dict.fromkeys(a + b for a, b in pairs))
    ids = {piece: i for i, piece in enumerate(vocab)}
    return BPEModel(vocab, np.array([[ids[a], ids[b]] for a, b in pairs], np.int32).reshape(-1, 2), **settings)


def distribution(symbols: tuple[int, ...], model: BPEModel, p: float) -> dict[tuple[int, ...], float]:
    """The probability of every segmentation, by going through all choices of what is left out at every step (Provilkov et
    al. 2020, algorithm 1: candidates are places)."""
    ranks = {tuple(pair): rank for rank, pair in reversed(list(enumerate(model.merges.tolist())))}

    @cache
    def outcomes(tokens: tuple[int, ...]) -> dict[tuple[int, ...], float]:
        candidates = [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(tokens)) if pair in ranks]
        result: Counter = Counter()
        for kept in itertools.product((False, True), repeat=len(candidates)):
            chance = np.prod([1 - p if k else p for k in kept])
            left = list(itertools.compress(candidates, kept))
            if not left:
                result[tokens] += chance
                continue
            rank, i = min(left)
            for final, share in outcomes((*tokens[:i], int(model.merged[rank]), *tokens[i + 2 :])).items():
                result[final] += chance * share
        return dict(result)

    return outcomes(symbols)


def sampled(model: BPEModel, word: bytes, dropout: float, n: int, **how) -> Counter:
    words = of_words([[word]] * n)
    keys = document_keys(range(n), Sampling(seed=len(word)))
    tokens, offsets = BPEDropout(model, **how).encode(words, Sampling(dropout=dropout), keys)
    return Counter(tuple(tokens[a:b].tolist()) for a, b in itertools.pairwise(offsets.tolist()))


def chi_square(seen: Counter, expected: dict, n: int) -> float:
    """How many standard deviations chi-square is above its mean (Wilson and Hilferty 1931); rare outcomes count as one."""
    assert set(seen) <= {outcome for outcome, chance in expected.items() if chance > 0}
    cells = [(seen[o], n * chance) for o, chance in expected.items() if n * chance >= 5]
    rare = (n - sum(s for s, _ in cells), n - sum(e for _, e in cells))
    cells += [rare] if rare[1] >= 1 else []
    freedom = len(cells) - 1
    value = sum((s - e) ** 2 / e for s, e in cells)
    return ((value / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / (2 / (9 * freedom)) ** 0.5


ABC = byte_model(b"a b", b"b c", b"ab c", b"a bc", b"c a", b"abc abc", b"a a")


@pytest.mark.parametrize("short", [64, 0])
@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("word", [b"abcabc", b"aaaa", b"cabca", b"bcabcaa"])
def test_the_distribution_is_that_of_the_process(word, dropout, short):
    expected = distribution(tuple(word), ABC, dropout)
    assert abs(sum(expected.values()) - 1) < 1e-9
    n = 20_000
    assert chi_square(sampled(ABC, word, dropout, n, short=short), expected, n) < 4


def test_the_heap_draws_as_the_search_does():
    rng = np.random.default_rng(3)
    documents = [
        [rng.choice(list(b"abc"), size).astype(np.uint8).tobytes() for size in rng.integers(1, 65, 20)]
        for _ in range(30)
    ]
    words, keys = of_words(documents), document_keys(range(30), Sampling())
    for dropout in (0.05, 0.4, 0.97):
        sampling = Sampling(dropout=dropout)
        results = [BPEDropout(ABC, short).encode(words, sampling, keys) for short in (64, 0)]
        assert np.array_equal(results[0][0], results[1][0])
        assert np.array_equal(results[0][1], results[1][1])


def characters(**settings) -> BPEModel:
    vocab = ["?", "a", "##a", "b", "##b", "##b</w>", "b</w>", "ab", "##ab</w>", "aab</w>", "##a</w>", "a</w>", "aa"]
    merges = [("##a", "##b</w>"), ("a", "##a"), ("a", "##ab</w>"), ("aa", "##b</w>"), ("a", "##b")]
    ids = {piece: i for i, piece in enumerate(vocab)}
    return BPEModel(
        [piece.encode() for piece in vocab], [[ids[a], ids[b]] for a, b in merges], "characters", b"##", b"</w>", 0,
        **settings,
    )  # fmt: skip


MODELS = {
    "bytes": ABC,
    "bytes, whole words first": byte_model(b"a b", b"b c", b"a bc", ignore_merges=True),
    "characters": characters(),
    "characters, unknown ones one by one": characters(fuse_unk=False),
    "characters, unknown ones dropped": characters(drop_unknown=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_without_dropout_it_is_encoding(name):
    model = MODELS[name]
    texts = ["aab", "ab", "abab", "xxab", "日本b", "a", "abc" * 40, "aab" * 300, "b日" * 100]
    documents = [[text.encode() for text in texts]] * 3
    words, encoder = of_words(documents), model.encoder()
    expected = encoder.encode(words)
    keys = document_keys(range(3), Sampling())
    for dropout in (0, 1e-300):
        result = encoder.encode_sampled(words, Sampling(dropout=dropout), keys)
        if not (dropout and model.ignore_merges):  # words are not looked up as wholes when merges are left out
            assert all(np.array_equal(a, b) for a, b in zip(result, expected, strict=True))
    different = encoder.encode_sampled(words, Sampling(dropout=0.5), keys)[0]
    assert len(different) >= len(expected[0])


def test_characters_with_marks_follow_the_process():
    model = MODELS["characters"]
    symbols = tuple(model.vocab.ids[piece] for piece in (b"a", b"##a", b"##a", b"##b</w>"))
    n = 20_000
    assert chi_square(sampled(model, b"aaab", 0.3, n), distribution(symbols, model, 0.3), n) < 4


def test_merges_that_encoding_never_makes_can_happen():
    # b"bc" is never made without dropout: b"ab" comes first, and with no a before it the word has no bc either.
    seen = sampled(byte_model(b"a b", b"b c", b"a bc"), b"abc", 0.5, 2000)
    assert {tuple(b"abc"), (256, ord("c")), (ord("a"), 257), (258,)} == set(seen)


def trained() -> Tokenizer:
    return shardpiece.train_bpe(shardpiece.WordTable.from_texts(["low lower lowest newest widest"] * 9, "gpt2"), 280)


def test_a_document_has_its_tokens_wherever_it_stands():
    tokenizer = trained()
    texts = [f"the lowest {i} newest lower<s>widest" for i in range(40)]
    tokenizer = Tokenizer(tokenizer.engine, tokenizer.model, ["<s>"])
    sampling = Sampling(dropout=0.3, seed=5)
    ids = [f"doc-{i}" for i in range(40)]

    def encode(order: list[int], sampling: Sampling, in_text: str = "text") -> dict[int, list[int]]:
        keys = document_keys([ids[i] for i in order], sampling)
        tokens, offsets = tokenizer.encode_documents(
            Documents.from_strings([texts[i] for i in order]), in_text, sampling, keys
        )
        return {i: tokens[offsets[x] : offsets[x + 1]].tolist() for x, i in enumerate(order)}

    whole = encode([*range(40)], sampling)
    assert encode([*range(39, -1, -1)], sampling) == whole
    assert {**encode([*range(20)], sampling), **encode([*range(20, 40)], sampling)} == whole
    assert encode([*range(40)], Sampling(dropout=0.3, seed=5, epoch=1)) != whole
    assert encode([*range(40)], Sampling(dropout=0.3, seed=6)) != whole
    assert len({tuple(tokens) for tokens in whole.values()}) == 40
    for i, tokens in encode([*range(40)], sampling, "token").items():
        assert tokenizer.decode(tokens) == texts[i]
        assert tokens.count(tokenizer.special_tokens["<s>"]) == 1
    # The same words in the two pieces of a document draw other numbers.
    texts[:] = ["lowest newest lowest newest<s>lowest newest lowest newest"] * 40
    border = tokenizer.special_tokens["<s>"]
    both = encode([*range(40)], sampling, "token").values()
    assert sum(tokens[: tokens.index(border)] == tokens[tokens.index(border) + 1 :] for tokens in both) < 5


def test_a_long_word_takes_m_log_m():
    rng = np.random.default_rng(1)
    model = trained().model
    seconds = []
    for text in (b"e" * 1_000_000, rng.integers(0, 256, 1_000_000, np.uint8).tobytes(), b"lowest" * 160_000):
        words = Words(np.frombuffer(text, np.uint8), 0, np.array([len(text)]), np.array([1]))
        start = time.process_time()
        tokens, _ = model.encoder().encode_sampled(words, Sampling(dropout=0.1), np.ones(1, np.uint64))
        seconds.append(time.process_time() - start)
        assert b"".join(model.vocab[i] for i in tokens.tolist()) == text
    assert max(seconds) < 3
