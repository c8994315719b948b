"""The harness finds differences, and cuts them down."""

import numpy as np
import pytest

import shardpiece
from shardpiece.tokenizer.bpe import BPEModel
from tests.conformance.comparing import Comparison, Kept, digests, shortest
from tests.conformance.references import Encoded
from tests.conformance.texts import Adversary, code_points, fuzzed_bytes


class Contrary:
    """Encodes as a tokenizer does, but for what ends with "x" behind a letter b somewhere."""

    special_tokens, added, unk_id, version, size = {}, [], None, "1", 256

    def __init__(self, tokenizer):
        self.tokenizer, self.asked = tokenizer, 0

    def encode(self, texts, in_text, template=False):
        self.asked += 1
        return Encoded.of([[*self.tokenizer.encode(text), *([7] if self._differs(text) else [])] for text in texts])

    def _differs(self, text):
        return text.endswith("x") and "b" in text

    def decode(self, batch, skip=False):
        return [self.tokenizer.decode(ids).encode() + b"!" * (5 in ids) for ids in batch]


@pytest.fixture(scope="module")
def tokenizer():
    pieces = [*(bytes([b]) for b in range(256)), b"lo", b"low", b" low"]
    return shardpiece.Tokenizer(shardpiece.TextEngine("gpt2"), BPEModel.from_ranks(pieces))


def test_differences_are_cut_down(tokenizer):
    comparison = Comparison("contrary", tokenizer, Contrary(tokenizer))
    comparison.ids("texts", ["low", "lower b é lowestx", "b", "lowest x", "bbbx"], "text")
    report = comparison.report
    assert not report.ok
    assert (report.checked, report.wrong) == ({"texts": 5}, {"texts": 2})
    assert [shown.text for shown in report.shown] == ["bx"]
    comparison.decoding("ids", [[1, 2], [3, 5, 4, 9]])
    assert [shown.text for shown in report.shown] == ["bx", "[5]"]
    comparison.lossless("bytes", ["low", *fuzzed_bytes(50, 1)], "text")
    assert report.wrong["bytes"] == 0
    assert "**2 differ**" in str(report)


def test_results_are_kept(tokenizer, tmp_path):
    peer = Contrary(tokenizer)
    kept = Kept(tmp_path)
    first = kept.digests(peer, "contrary", ["a", "low"], "text")
    assert (kept.digests(peer, "contrary", ["a", "low"], "text") == first).all()
    assert peer.asked == 1
    kept.digests(peer, "contrary", ["al", "ow"], "text")
    assert peer.asked == 2


def test_shortest():
    assert (
        shortest("a" * 500 + "x" + "é" * 300 + "y" + "b" * 77, lambda t: "x" in t and "y" in t[t.find("x") :]) == "xy"
    )
    assert shortest("日本", lambda t: len(t) == 2) == "aa"


def test_digests_tell_texts_apart():
    one = digests(Encoded.of([[1, 2], [], [3]]))
    other = digests(Encoded.of([[1], [2], [3]]))
    assert (one == other).all(axis=1).tolist() == [False, False, True]
    assert digests(Encoded(np.empty(0, np.int32), np.zeros(1, np.int64))).shape == (0, 2)


def test_texts_are_the_same_every_time():
    def strings():
        return next(Adversary(["ab", "é"], ["<s>"], "seed").strings(300))

    assert strings() == strings()
    assert fuzzed_bytes(20, 1) == fuzzed_bytes(20, 1)
    assert sum(len(batch) for batch in code_points(iter(range(0xD7F0, 0xE010)))) == 3 * (0x820 - 0x800)
