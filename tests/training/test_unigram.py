"""The Unigram trainer against a plain-Python one, over threads, and against SentencePiece's vocabulary."""

import io
import math
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.errors import ConfigError, TrainingError
from shardpiece.tokenizer.trie_kernels import build_trie
from shardpiece.training import portable_math_kernels as portable
from shardpiece.training import unigram as trainer
from shardpiece.training import unigram_kernels as k
from shardpiece.training import unigram_seeds as seeds
from shardpiece.training.unigram import learn_unigram

WORDS = st.dictionaries(st.text("abc", min_size=1, max_size=9).map(lambda w: "▁" + w), st.integers(1, 50), min_size=1)


def table(counts: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    words = [word.encode() for word in counts]
    data = np.frombuffer(b"".join(words), np.uint8)
    return data, np.cumsum([0, *map(len, words)], dtype=np.int64), np.array(list(counts.values()), np.int64)


# -- the reference -----------------------------------------------------------------------------------------------------


def segmentations(word: str, scores: dict[str, float]) -> list[list[str]]:
    if not word:
        return [[]]
    return [
        [word[:n], *rest]
        for n in range(1, len(word) + 1)
        if word[:n] in scores
        for rest in segmentations(word[n:], scores)
    ]


def reference_expectations(counts: dict[str, int], scores: dict[str, float]) -> tuple[dict[str, float], float]:
    expected: dict[str, float] = defaultdict(float)
    likelihood = 0.0
    for word, count in counts.items():
        paths = segmentations(word, scores)
        weights = [math.exp(sum(scores[p] for p in path)) for path in paths]
        z = math.fsum(weights)
        likelihood += count * math.log(z)
        for path, weight in zip(paths, weights, strict=True):
            for piece in path:
                expected[piece] += count * weight / z
    return expected, likelihood


def reference_seeds(counts: dict[str, int], longest: int, valid=lambda piece: "▁" not in piece[1:]) -> dict[str, int]:
    """Valid substrings of weight ≥ 2 that different things follow; a forbidden neighbour is a thing of its own."""
    total: Counter[str] = Counter()
    followed: dict[str, set] = defaultdict(set)
    for w, (word, count) in enumerate(counts.items()):
        for i in range(len(word)):
            for j in range(i + 1, min(len(word), i + longest) + 1):
                if not valid(word[i:j]):
                    break
                total[word[i:j]] += count
                go_on = j < len(word) and valid(word[i : j + 1])
                followed[word[i:j]] |= {word[j]} if go_on else {(w, i, j, n) for n in range(min(count, 2))}
    return {p: n * len(p) for p, n in total.items() if len(p) == 1 or (n >= 2 and len(followed[p]) > 1)}


def prepared(counts: dict[str, int], **options):
    arrays = table(counts)
    alphabet = seeds.choose_alphabet(*arrays, 1.0, ())
    kinds = seeds.character_kinds(*(options.get(name, default) for name, default in _SPLITS.items()))
    return arrays, alphabet, kinds, seeds.cut(*arrays, alphabet, kinds)


_SPLITS = {"split_by_script": True, "split_by_number": True, "split_digits": False}


def spelled(pieces: seeds.Pieces, alphabet: seeds.Alphabet) -> list[str]:
    text = [chr(alphabet.characters[c - 1]) for c in pieces.symbols.tolist()]
    return ["".join(text[a:b]) for a, b in zip(pieces.offsets[:-1].tolist(), pieces.offsets[1:].tolist(), strict=True)]


# -- arithmetic --------------------------------------------------------------------------------------------------------


def test_portable_functions_are_accurate():
    rng = random.Random(1)
    for _ in range(2000):
        x = math.exp(rng.uniform(-600, 600))
        assert portable.log(x) == pytest.approx(math.log(x), rel=4e-16, abs=1e-300)
        y = rng.uniform(-600, 600)
        assert portable.exp(y) == pytest.approx(math.exp(y), rel=1e-15)
    assert portable.log(1.0) == 0.0
    assert portable.exp(0.0) == 1.0
    assert portable.digamma(1.0) == pytest.approx(-0.5772156649015329, abs=1e-15)
    assert portable.digamma(0.5) == pytest.approx(-1.9635100260214235, abs=2e-15)
    for x in (0.7, 3.3, 12.0, 1e4, 1e12):
        assert portable.digamma(x + 1) == pytest.approx(portable.digamma(x) + 1 / x, rel=1e-14)


# -- seeds -------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(WORDS, st.integers(1, 6))
def test_seeds_are_the_repeated_substrings_with_their_weights(counts, longest):
    _, alphabet, kinds, segments = prepared(counts)
    pieces = seeds.find_seeds(segments, alphabet, kinds, longest, 10**6)
    expected = reference_seeds(counts, longest)
    total = sum(expected.values())
    found = dict(zip(spelled(pieces, alphabet), pieces.scores.tolist(), strict=True))
    assert found == pytest.approx({p: math.log(n / total) for p, n in expected.items()}, abs=1e-12)


def test_few_seeds_are_the_heaviest_by_count_not_by_distinct_words():
    # xyz stands in three rare words, abc in one frequent word.
    counts = {"▁qabc": 1000, "▁xyzr": 1, "▁xyzs": 1, "▁xyzt": 1}
    _, alphabet, kinds, segments = prepared(counts)
    pieces = seeds.find_seeds(segments, alphabet, kinds, 16, 3)
    multiple = {p for p in spelled(pieces, alphabet) if len(p) > 1}
    assert multiple == {"▁qabc", "qabc", "abc"}
    result = learn_unigram(*table(counts), 12, seed_size=3)
    assert "▁qabc".encode() in result.pieces
    assert not any(b"xy" in piece for piece in result.pieces)


def test_pieces_keep_to_one_script():
    counts = {"▁abcдеж12,漢字ひらカター": 10, "▁дежabc": 10, "▁e\u0301e\u0301": 10}
    result = learn_unigram(*table(counts), 80, character_coverage=1.0)
    pieces = {piece.decode() for piece in result.pieces}
    multiple = [p for p in pieces if len(p) > 1]
    assert any("漢字ひら" in p for p in multiple)
    assert any("12," in p for p in multiple)
    for p in multiple:
        assert not (set(p) & set("abc") and set(p) & set("деж12,漢"))
        assert "▁" not in p[1:]


@pytest.mark.parametrize(
    ("options", "allowed", "forbidden"),
    [
        ({"split_by_script": False}, "abcдеж", "▁▁"),
        ({"split_by_number": False}, "c12", "cд"),
        ({"split_digits": True}, "abc", "12"),
        ({"max_piece_length": 2}, "ab", "abc"),
    ],
)
def test_what_settings_allow(options, allowed, forbidden):
    counts = {"▁abcдеж": 10, "▁abc12": 30, "▁12abc": 20, "▁ab": 5, "▁12": 7}
    result = learn_unigram(*table(counts), 100, character_coverage=1.0, **options)
    pieces = [piece.decode() for piece in result.pieces]
    assert any(allowed in piece for piece in pieces)
    assert not any(forbidden in piece for piece in pieces)


def test_a_piece_is_valid_wherever_the_rule_says():
    """longest_pieces against the rule applied to each substring."""
    rng = random.Random(3)
    alphabet = "aд1\u0301ー漢 "
    for options in ({}, {"split_by_number": False}, {"split_digits": True}):
        kinds = seeds.character_kinds(**{**_SPLITS, **options})
        for _ in range(200):
            word = "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 10)))
            text = np.arange(1, len(word) + 1, dtype=np.int32)
            by_number = np.array([0, *(kinds[ord(c)] for c in word)], np.int32)
            length = np.empty(len(word), np.int32)
            k.longest_pieces(text, np.array([0, len(word)], np.int64), by_number, 6, length)
            for i in range(len(word)):
                valid = [n for n in range(1, min(6, len(word) - i) + 1) if _is_valid(word[i : i + n], **options)]
                assert valid == list(range(1, length[i] + 1))


def _is_valid(piece: str, split_by_number=True, split_digits=False) -> bool:
    """The rule as SentencePiece's trainer has it."""
    before = None
    for c in piece:
        script = {"a": "Latin", "д": "Cyrillic", "1": "Common", "ー": "Han", "漢": "Han", "\u0301": before, " ": None}[
            c
        ]
        if c == "1" and split_digits and len(piece) > 1:
            return False
        if c == "1" and not split_by_number:
            script = None
        if script is not None and before is not None and script != before:
            return False
        before = script
    return True


# -- EM ----------------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(WORDS, st.integers(0, 10**6))
def test_expected_counts_equal_the_sum_over_all_segmentations(counts, seed):
    _, alphabet, kinds, segments = prepared(counts)
    pieces = seeds.find_seeds(segments, alphabet, kinds, 16, 10**6)
    rng = random.Random(seed)
    scores = np.array([rng.uniform(-12, -0.5) for _ in range(len(pieces))])
    expected, likelihood = reference_expectations(counts, dict(zip(spelled(pieces, alphabet), scores, strict=True)))
    found, found_likelihood = _expect(segments, alphabet, pieces, scores, rng.uniform(-3, 8))
    assert found_likelihood == pytest.approx(likelihood, rel=1e-12)
    assert found.tolist() == pytest.approx([expected[p] for p in spelled(pieces, alphabet)], rel=1e-9, abs=1e-12)


def _expect(segments, alphabet, pieces, scores, log_scale):
    nodes, node_of = build_trie(pieces.symbols, pieces.offsets, len(alphabet) + 1)
    weight = np.empty(len(pieces))
    k.weights(scores, pieces.offsets, log_scale, weight)
    nodes["weight"][node_of] = weight
    expected = np.zeros(len(nodes))
    run = trainer._Passes(trainer._Run(1, None, None), segments, len(alphabet) + 1, 16)
    total = k.expect(
        segments.text, segments.starts, segments.counts, 0, len(segments), nodes, 16, log_scale, expected,
        *run._scratch(0),
    )  # fmt: skip
    return expected[node_of], total


@pytest.mark.parametrize("log_scale", [0.0, 1.0, 2.5, 12.0])
def test_long_words_neither_vanish_nor_overflow(log_scale):
    """The scaled forward–backward against one in Python with logarithms."""
    rng = random.Random(5)
    word = "".join(rng.choice("ab" if i < 1500 else "cd") for i in range(3000)) + "e" * 500
    counts = {word: 3}
    _, alphabet, kinds, segments = prepared(counts)
    pieces = seeds.find_seeds(segments, alphabet, kinds, 16, 300)
    names = spelled(pieces, alphabet)
    scores = np.array([-20.0 if set(p) & set("cd") else -0.5 if "e" in p else -6.0 for p in names])
    found, likelihood = _expect(segments, alphabet, pieces, scores, log_scale)
    score_of = dict(zip(names, scores.tolist(), strict=True))
    n = len(word)

    def add(a, b):
        return max(a, b) + math.log1p(math.exp(-abs(a - b))) if min(a, b) > -math.inf else max(a, b)

    alpha, beta = [-math.inf] * (n + 1), [-math.inf] * (n + 1)
    alpha[0] = beta[n] = 0.0
    edges = [(i, j) for i in range(n) for j in range(i + 1, min(n, i + 16) + 1) if word[i:j] in score_of]
    for i, j in edges:
        alpha[j] = add(alpha[j], alpha[i] + score_of[word[i:j]])
    for i, j in reversed(edges):
        beta[i] = add(beta[i], beta[j] + score_of[word[i:j]])
    expected: dict[str, float] = defaultdict(float)
    for i, j in edges:
        expected[word[i:j]] += 3 * math.exp(alpha[i] + score_of[word[i:j]] + beta[j] - alpha[n])
    assert likelihood == pytest.approx(3 * alpha[n], rel=1e-11)
    assert found.tolist() == pytest.approx([expected[p] for p in names], rel=1e-7, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(WORDS, st.integers(0, 10**6))
def test_losses_are_those_of_the_second_best_segmentation(counts, seed):
    _, alphabet, kinds, segments = prepared(counts)
    pieces = seeds.find_seeds(segments, alphabet, kinds, 16, 10**6)
    names = spelled(pieces, alphabet)
    rng = random.Random(seed)
    scores = np.array([rng.uniform(-12, -0.5) for _ in names])
    score_of = dict(zip(names, scores.tolist(), strict=True))
    used: Counter[str] = Counter()
    for word, count in counts.items():
        best = max(segmentations(word, score_of), key=lambda path: sum(score_of[p] for p in path))
        for piece in best:
            used[piece] += count
    total = sum(used.values())
    nodes, node_of = build_trie(pieces.symbols, pieces.offsets, len(alphabet) + 1)
    nodes["weight"] = -np.inf
    nodes["weight"][node_of] = scores
    found = np.zeros(len(nodes), np.int64)
    run = trainer._Passes(trainer._Run(1, None, None), segments, len(alphabet) + 1, 16)
    best, _, edges, lengths, *_ = run._scratch(0)
    k.best_counts(segments.text, segments.starts, segments.counts, 0, len(segments), nodes, found, best, edges, lengths)
    assert dict(zip(names, found[node_of].tolist(), strict=True)) == {p: used[p] for p in names}
    loss = np.empty(len(pieces))
    k.losses(pieces.symbols, pieces.offsets, 0, len(pieces), nodes, node_of, found, float(total), loss)
    for piece, score, value in zip(names, scores, loss.tolist(), strict=True):
        others = [path for path in segmentations(piece, score_of) if len(path) > 1]
        if len(piece) == 1:
            assert value == math.inf
            continue
        second = max(others, key=lambda path: sum(score_of[p] for p in path))
        if used[piece] == 0 or sum(score_of[p] for p in second) > score:
            assert value == -math.inf
            continue
        f = used[piece]
        instead = sum(math.log(used[p] + f) for p in second)
        instead -= len(second) * math.log(total + f * (len(second) - 1))
        assert value == pytest.approx(f * (math.log(f / total) - instead), rel=1e-9, abs=1e-9)


def test_scores_are_digammas_and_rare_pieces_go():
    expected = np.array([10.0, 0.2, 0.2, 3.5])
    offsets = np.array([0, 1, 2, 4, 6], np.int64)
    scores = np.empty(4)
    k.new_scores(expected, offsets, 0.5, scores)
    total = portable.digamma(14.0)
    assert scores.tolist() == [
        portable.digamma(10.0) - total, portable.digamma(0.5) - total, -math.inf, portable.digamma(3.5) - total
    ]  # fmt: skip


# -- the whole training ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def text_words() -> dict[str, int]:
    rng = random.Random(7)
    stems = [
        "".join(rng.choice("aeiou" if i % 2 else "bcdfgklmnprst") for i in range(rng.randrange(2, 7)))
        for _ in range(300)
    ]
    endings = ["", "s", "ed", "ing", "er", "ness", ",", "."]
    counts: Counter[str] = Counter()
    for _ in range(8000):
        counts["▁" + stems[int(rng.random() ** 2 * 300)] + rng.choice(endings)] += rng.randrange(1, 4)
    return dict(sorted(counts.items()))


def test_any_number_of_threads_gives_the_same_bytes(text_words, monkeypatch):
    monkeypatch.setattr(trainer, "_LANE_SYMBOLS", 1 << 10)
    monkeypatch.setattr(trainer, "_CHUNK_SYMBOLS", 1 << 9)
    results = [learn_unigram(*table(text_words), 200, threads=threads) for threads in (1, 2, 3)]
    for result in results[1:]:
        assert result.pieces == results[0].pieces
        assert result.scores.tobytes() == results[0].scores.tobytes()
    assert len(results[0].pieces) == 200


def test_the_order_of_the_words_does_not_matter(text_words):
    words = list(text_words.items())
    random.Random(1).shuffle(words)
    a, b = learn_unigram(*table(text_words), 200), learn_unigram(*table(dict(words)), 200)
    assert a.pieces == b.pieces
    assert a.scores.tobytes() == b.scores.tobytes()


def test_counts_beyond_32_bits_change_nothing_but_the_prior(text_words):
    big = {word: count << 33 for word, count in text_words.items()}
    a, b = learn_unigram(*table(text_words), 200), learn_unigram(*table(big), 200)
    assert len(set(a.pieces) & set(b.pieces)) > 180
    assert np.isfinite(b.scores).all()


def test_result_is_sorted_and_almost_a_distribution(text_words):
    result = learn_unigram(*table(text_words), 300)
    assert result.complete
    assert result.scores.tolist() == sorted(result.scores.tolist(), reverse=True)
    assert 0.9 < np.exp(result.scores).sum() <= 1.0
    assert len(set(result.pieces)) == 300
    assert {c for word in text_words for c in word} <= {piece.decode() for piece in result.pieces}
    assert result.counts.shape == result.scores.shape


def test_rare_characters_are_left_out_and_required_ones_are_not():
    counts = {"▁aaaa": 10_000, "▁abab": 5000, "▁x": 1, "▁aya": 1}
    result = learn_unigram(*table(counts), 20, character_coverage=0.999, required=("z", "x"))
    pieces = {piece.decode() for piece in result.pieces}
    assert "y" not in pieces
    assert {"a", "b", "▁", "x", "z"} <= pieces
    assert result.pieces[-1] == b"z"  # does not occur
    assert result.coverage < 1.0


def test_bytes_that_are_no_text_are_cuts():
    data = np.frombuffer(b"ab\xffab\xe3\x81ab\0ab", np.uint8)
    arrays = data, np.array([0, len(data)], np.int64), np.array([5], np.int64)
    result = learn_unigram(*arrays, 10, character_coverage=1.0)
    assert set(result.pieces) == {b"a", b"b", b"ab"}


def test_stop_and_progress(text_words):
    seen = []
    result = learn_unigram(*table(text_words), 200, progress=lambda done, facts: seen.append((done, facts)))
    assert result.complete
    done = [fraction for fraction, _ in seen]
    assert done == sorted(done)
    assert done[-1] == 1.0
    for limit in (0, 1, 4):
        asked = iter(range(100))
        stopped = learn_unigram(*table(text_words), 200, stop=lambda a=asked, n=limit: next(a) >= n)
        assert not stopped.complete
        assert len(stopped.pieces) == 200
        assert {c for word in text_words for c in word} <= {piece.decode() for piece in stopped.pieces}


def test_what_cannot_be_trained_is_refused(text_words, monkeypatch):
    arrays = table(text_words)
    with pytest.raises(ConfigError, match="higher by at least"):
        learn_unigram(*arrays, 10, character_coverage=1.0)
    with pytest.raises(ConfigError, match="character_coverage"):
        learn_unigram(*arrays, 200, character_coverage=1.5)
    with pytest.raises(ConfigError, match="one character"):
        learn_unigram(*arrays, 200, required=("ab",))
    with pytest.raises(TrainingError, match="empty"):
        learn_unigram(np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.int64), 10)
    with pytest.raises(TrainingError, match="positive"):
        learn_unigram(arrays[0], arrays[1], arrays[2] * 0, 200)
    monkeypatch.setattr(trainer, "available_bytes", lambda: 1 << 20)
    with pytest.raises(TrainingError, match="GB"):
        learn_unigram(*arrays, 200)


def test_fewer_pieces_than_asked_are_reported():
    lines = []
    result = learn_unigram(*table({"▁ab": 10, "▁cd": 10}), 1000, log=lines.append)
    assert len(result.pieces) < 20
    assert "only" in lines[-1]


def test_likelihood_is_no_worse_than_sentencepieces(text_words):
    spm = pytest.importorskip("sentencepiece")
    lines = [word[1:] for word, count in text_words.items() for _ in range(count)]
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="unigram", vocab_size=203,
        normalization_rule_name="identity", character_coverage=1.0, num_threads=1, minloglevel=2,
    )  # fmt: skip
    peer = spm.SentencePieceProcessor(model_proto=model.getvalue())
    theirs = {peer.id_to_piece(i): peer.get_score(i) for i in range(3, len(peer))}
    result = learn_unigram(*table(text_words), 200, character_coverage=1.0)
    ours = dict(zip([p.decode() for p in result.pieces], result.scores.tolist(), strict=True))
    assert len(theirs) == len(ours) == 200

    def likelihood(scores):
        total = 0.0
        for word, count in text_words.items():
            forward = [1.0] + [0.0] * len(word)
            for i in range(len(word)):
                for j in range(i + 1, len(word) + 1):
                    if word[i:j] in scores:
                        forward[j] += forward[i] * math.exp(scores[word[i:j]])
            total += count * math.log(forward[-1])
        return total

    assert likelihood(ours) > likelihood(theirs) * 1.005
