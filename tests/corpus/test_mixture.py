"""Mixtures against a plain reference, document by document."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from shardpiece.corpus.keys import document_hash
from shardpiece.corpus.mixture import PURPOSE, Share, Take, Tally, parse_mixture, resolve, taken
from shardpiece.errors import ConfigError

RNG = np.random.default_rng(6)
DOCUMENTS = [(f"d{i}", ("wiki", "code", "web")[i % 3], int(RNG.integers(0, 50))) for i in range(3_000)]


def tally(shares, documents, batch=100):
    result = Tally(shares)
    for first in range(0, len(documents), batch):
        part = documents[first : first + batch]
        names = sorted({group for _, group, _ in part})
        codes = np.array([names.index(group) for _, group, _ in part])
        lengths = np.array([n for _, _, n in part])
        hashes = document_hash(0, pa.array([name for name, _, _ in part]), PURPOSE)
        result.add(names, codes, hashes, 4 * lengths, lengths)
    return result


def plain_budget(documents, budget):
    """Copies by document: buckets of hashes in their order, over and over, until the budget is reached."""
    hashes = document_hash(0, pa.array([name for name, _, _ in documents]), PURPOSE).tolist()
    order = sorted(range(len(documents)), key=lambda i: hashes[i])
    copies = [0] * len(documents)
    spent = 0
    while spent < budget:
        bucket = None
        for i in order:
            if spent >= budget and hashes[i] >> 48 != bucket:
                break
            copies[i] += 1
            spent += documents[i][2]
            bucket = hashes[i] >> 48
    return copies, spent


@pytest.mark.parametrize("budget", [0, 1, 7_000, 24_000, 49_999, 50_000, 123_456])
def test_a_budget_is_spent_in_the_order_of_hashes(budget):
    mine = [document for document in DOCUMENTS if document[1] == "code"]
    shares = parse_mixture({"code": f"{budget} tokens", "*": 1})
    groups = tally(shares, DOCUMENTS).groups()
    take = resolve(shares, groups)["code"]
    expected, spent = plain_budget(mine, budget)
    hashes = document_hash(0, pa.array([name for name, _, _ in mine]), PURPOSE)
    got = take.copies(hashes)
    # Documents without tokens at the bound cost nothing, either way.
    differ = got != expected
    assert all(mine[i][2] == 0 for i in np.flatnonzero(differ))
    assert taken(take, groups["code"])["tokens"] == spent == sum(n * c for (_, _, n), c in zip(mine, got, strict=True))
    assert budget <= spent < budget + 400


def test_epochs():
    ids = pa.array([f"{i}" for i in range(10_000)])
    hashes = document_hash(0, ids, PURPOSE)
    shares = parse_mixture({"a": 2.0, "b": 0.5, "c": "1.5", "d": 0, "e": 1})
    copies = {name: Take.of_epochs(share.epochs).copies(hashes) for name, share in shares.items()}
    assert set(copies["a"]) == {2}
    assert (copies["b"] == (hashes < 1 << 63)).all()
    assert (copies["c"] == 1 + copies["b"]).all()
    assert set(copies["d"]) == {0}
    assert set(copies["e"]) == {1}
    assert [name for name, share in shares.items() if share.repeats] == ["a", "c"]
    assert Take(1, 5).repeats
    assert not Take(1).repeats


def test_what_is_said_of_a_group():
    assert parse_mixture({"a": "0.5B tokens", "b": "12_000 tokens", "c": "3,000 K Tokens", "d": 0.1}) == {
        "a": Share(tokens=500_000_000),
        "b": Share(tokens=12_000),
        "c": Share(tokens=3_000_000),
        "d": Share(epochs=Fraction(0.1)),
    }
    for wrong in (-1, "many", float("nan"), float("inf"), "5 token", True, "-3 tokens", None, 1e9):
        with pytest.raises(ConfigError, match=r"encode\.mixture: code: .* neither a number of epochs .* nor a budget"):
            parse_mixture({"code": wrong})


def test_groups_are_named_or_it_is_an_error():
    groups = tally({}, DOCUMENTS).groups()
    with pytest.raises(ConfigError, match=r"nothing is said of the groups 'code', 'web'"):
        resolve(parse_mixture({"wiki": 2}), groups)
    with pytest.raises(
        ConfigError, match=r"no document is of the group 'wikki' \(the corpus has 'code', 'web', 'wiki'"
    ):
        resolve(parse_mixture({"wikki": 2, "*": 1}), groups)
    assert resolve(parse_mixture({"wiki": 2, "*": 0}), groups) == {"code": Take(0), "web": Take(0), "wiki": Take(2)}
    shares = parse_mixture({"a": "5 tokens", "*": 0})
    with pytest.raises(ConfigError, match="a: a budget of 5 tokens, and the group has no tokens"):
        resolve(shares, tally(shares, [("d", "a", 0)]).groups())
    with pytest.raises(ConfigError, match="more than 10,000 times the 1 of the group"):
        resolve(parse_mixture({"a": "1M tokens"}), tally(shares, [("d", "a", 1)]).groups())


@pytest.mark.parametrize("pieces", [1, 7])
def test_tallies_of_tasks_add_up(pieces, monkeypatch):
    monkeypatch.setattr("shardpiece.corpus.mixture._PENDING", 500)
    shares = parse_mixture({"code": "1K tokens", "*": 1})
    total = Tally(shares)
    for piece in range(pieces):
        for name, packed in tally(shares, DOCUMENTS[piece::pieces]).packed():
            total.add_packed(name, packed)
    groups = total.groups()
    assert [len(groups[name].tokens) for name in ("code", "web", "wiki")] == [1 << 16, 1, 1]
    for name, group in groups.items():
        mine = [n for _, other, n in DOCUMENTS if other == name]
        assert (group.documents.sum(), group.bytes.sum(), group.tokens.sum()) == (len(mine), 4 * sum(mine), sum(mine))
    # Half of a group without buckets is an estimate; nothing, all and twice are not.
    assert taken(Take(2), groups["web"])["documents"] == 2_000
    assert taken(Take(0, 1 << 63), groups["web"])["documents"] == 500
    assert list(Tally(shares).packed()) == []
