"""Characters that neither model nor normalizer knows, and what cuts at them."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardpiece.kernel_cache import read_only
from shardpiece.text.normalization import charsmap_check_kernels as check
from shardpiece.text.normalization.charsmap import Charsmap
from shardpiece.text.normalization.charsmap_rules import named_charsmap
from shardpiece.tokenizer import unigram_cut_kernels as k
from shardpiece.tokenizer import unigram_path_kernels as paths
from shardpiece.tokenizer import viterbi_kernels as viterbi
from shardpiece.tokenizer.formats import sentencepiece as f
from shardpiece.tokenizer.formats import sentencepiece_tokenizer
from shardpiece.tokenizer.inert_characters import character_classes
from shardpiece.tokenizer.unigram import NARROW, UnigramModel
from tests.tokenizer.test_raw_words import ids
from tests.tokenizer.test_sentencepiece_format import processor

RULES = {
    "x": "y",
    "xy": "z",
    "ab": "",
    "c": " ",
    "d": "e f",
    "漢字": "字",
    "é\u0301": "e ",
    "\u3000": " ",
    "g": "",
    "\u3000g": "h",
}
ATOMS = [
    *"abcd ~", "  ", "\n", "漢", "字", "漢字漢字", "。", "か", "か\u3099", "\u3099", "가", "각", "가\u11a8", "ก", "ا\u0653", "ᠠ", "😀",
    "\u3000", "\u00a0", "\u00b4", "\u0001", "\u200b", "½", "ﷺ", ",", "é", "e\u0301", "Ж", "Я", "ЖЯ", "日本語" * 9, "ก" * 70, "abc" * 30, "Я" * 40,
]  # fmt: skip


MADE_KNOWN = {
    "漢\u3099": "ab",
    "字か\u3099": "c",
    "ก\u0301": "",
    "\u3000": " ",
    "か": "d",
    "😀,": " a",
    "。\u200b": "b ",
}


def model_file(rng: random.Random, unknown: float = 0.0, charsmap: Charsmap | None = None) -> bytes:
    """A Unigram model that knows a to d and Ж, with paths about as good as each other."""
    pieces = [
        b"<unk>",
        "▁".encode(),
        *(c.encode() for c in "abcdЖ"),
        "▁a".encode(),
        "▁b".encode(),
        "▁Ж".encode(),
        "aЖ".encode(),
    ]
    pieces += sorted({"".join(rng.choices("abcd", k=k)).encode() for k in (2, 2, 3) for _ in range(15)})
    scores = [0, *(-8 - rng.randrange(64) / 8 + rng.choice((0, 1e-3, 3e-2)) + unknown for _ in pieces[1:])]
    types = [f.UNKNOWN, *[f.NORMAL] * (len(pieces) - 1)]
    normalizer = f.NormalizerSpec(precompiled_charsmap=(charsmap or named_charsmap("nmt_nfkc")).to_bytes())
    return f.write_model(
        f.SentencePieceFile(
            pieces, np.array(scores, np.float32), types, f.TrainerSpec(model_type="unigram"), normalizer
        )
    )


@pytest.mark.parametrize(
    "charsmap", [Charsmap.from_mapping(RULES), named_charsmap("nmt_nfkc")], ids=["few", "nmt_nfkc"]
)
def test_what_characters_are_to_the_sources(charsmap):
    expected = np.zeros(0x110000, np.uint8)
    for source, target in charsmap.mapping().items():
        for i, c in enumerate(source):
            expected[ord(c)] |= check.LATER if i else check.STARTS if len(source) > 1 else check.SINGLE
            if target == " " and len(source) == 1:
                expected[ord(c)] |= check.SPACE
            elif " " in target or not target:
                expected[ord(c)] |= check.ODD
    assert np.array_equal(charsmap.source_characters, expected)
    assert (check.source_characters(charsmap.units, charsmap.targets, 3) == 255).all()


def test_classes():
    tokenizer = sentencepiece_tokenizer.from_bytes(model_file(random.Random(1)), "inert.model")
    pages, classes, chinese = character_classes(tokenizer.model, named_charsmap("nmt_nfkc"), ["s\u00a0"])
    of = {
        c: int(classes.reshape(-1, 256)[pages[ord(c) >> 8]][ord(c) & 0xFF])
        for c in "漢か가ก😀aЯ\u3000\u00a0\u3099\u00b4"
    }
    assert chinese == k.CHINESE_LEADS
    assert [of[c] & k.INERT for c in "漢か가ก😀aЯ\u3000\u3099"] == [1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert of["か"] & k.STARTS
    assert of["\u3099"] & k.LATER
    assert of["\u00b4"] & k.ODD
    assert of["\u3000"] & k.SPACE
    assert not of["\u00a0"] & k.SPACE
    spelled = UnigramModel([b"a", *(b"<0x%02X>" % b for b in range(256))], np.zeros(257), byte_ids=np.arange(1, 257))
    assert len(character_classes(spelled, named_charsmap("nmt_nfkc"), [])[1]) == 0


@pytest.mark.parametrize(("seed", "charsmap"), [(1, None), (2, Charsmap.from_mapping(MADE_KNOWN))], ids=["nfkc", "few"])
def test_ids_are_those_of_the_library(seed, charsmap):
    raw = model_file(random.Random(seed), charsmap=charsmap)
    tokenizer, peer = sentencepiece_tokenizer.from_bytes(raw, "inert.model"), processor(raw)
    assert tokenizer._raw_words is not None

    @given(st.lists(st.lists(st.sampled_from([*ATOMS, "▁"]), max_size=30).map("".join), max_size=5))
    @settings(max_examples=300, deadline=None, derandomize=True)
    def check_texts(texts):
        assert ids(tokenizer, texts) == peer.encode(texts)

    check_texts()
    rng = random.Random(seed)
    texts = ["".join(rng.choices(ATOMS, k=rng.choice((3, 40, 400, 4000)))) for _ in range(60)]
    for cache_bytes in (64 << 20, 1):
        tokenizer.use_cache(cache_bytes)
        for _ in range(2):
            assert ids(tokenizer, texts) == peer.encode(texts)


def test_sums_of_long_runs():
    # Past the sum where the library begins anew: inside of runs, before and behind them.
    raw = model_file(random.Random(3), -200.0)
    tokenizer, peer = sentencepiece_tokenizer.from_bytes(raw, "runs.model"), processor(raw)
    rng = random.Random(4)
    parts = ["字" * 500, "字" * 7, "か" * 90, "ab", "cd abcd", " dcba", "Я" * 30, "Жa Я", " 漢", " "]
    texts = ["".join(rng.choices(parts, k=n)) for n in (1, 10, 10, 30, 100, 400, 1000) for _ in range(4)]
    for _ in range(2):
        assert ids(tokenizer, texts) == peer.encode(texts)


def test_paths_of_a_piece():
    rng = random.Random(5)
    for _ in range(300):
        pieces = {"".join(rng.choices("ab漢é", k=rng.randint(1, 4))).encode() for _ in range(rng.randint(1, 12))}
        scores = [rng.choice((-1.0, -1.5, -2.0, -2.0001, 0.25)) * rng.choice((1, 1, 30)) for _ in pieces]
        model = UnigramModel([b"<unk>", *sorted(pieces)], np.array([0, *scores]), 0, arithmetic=NARROW)
        raw = "".join(rng.choices("ab漢é", k=rng.randint(0, 25))).encode()
        n, text = len(raw), np.frombuffer(raw + bytes(8), np.uint8).copy()
        cells, cell_scores = model.cells
        nodes, weights, numbers = (read_only(array) for array in model.trie)
        best, second, last, path = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1), np.empty(n + 1, np.int32)
        best_2, second_2, narrow = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1, np.float32)
        node_at, begin_at, path_2 = (np.empty(n + 1, np.int32) for _ in range(3))
        unknown = model.unknown_score
        assert paths.best_paths(text, n, cells, cell_scores, unknown, best, second, last) == viterbi.two_best(
            text, 0, n, nodes, weights, unknown, best_2, second_2, node_at, begin_at
        )
        ends = [0, *itertools.accumulate(len(c.encode()) for c in raw.decode())]
        assert (best[ends] == best_2[ends]).all()
        assert (second[ends] == second_2[ends]).all()
        m = paths.collect_path(n, last, path)
        assert m == viterbi.walk_back(n, node_at, begin_at, numbers, path_2)
        assert (path[:m] == path_2[:m]).all()
        for total in (0.0, -1234.567, -99990.25, -100000.5):
            total = float(np.float32(total))
            expected = viterbi.follow(
                text, 0, n, total, True, nodes, weights, unknown, best_2, node_at, begin_at
            )  # fmt: skip
            assert paths.follow_narrow(text, n, total, cells, cell_scores, unknown, narrow, last) == expected
            m = paths.collect_path(n, last, path)
            assert m == viterbi.walk_back(n, node_at, begin_at, numbers, path_2)
            assert (path[:m] == path_2[:m]).all()
