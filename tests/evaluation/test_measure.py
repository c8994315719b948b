"""What is added up equals plain Python; parts merge to the whole; word tables agree with text."""

import numpy as np
import pyarrow as pa
import pytest

import shardpiece
from shardpiece.errors import InputError
from shardpiece.evaluation import build
from shardpiece.evaluation.cost import DEFAULT_SHAPES
from shardpiece.evaluation.measure import Measurer, TableMeasurer
from shardpiece.evaluation.parallel import STRIP_LAST_PART, key_hashes
from shardpiece.evaluation.schema import Report
from shardpiece.evaluation.tally import TextTally, TokenTally
from shardpiece.text.documents import Documents
from tests.evaluation import reference


def measure(tokenizers, rows, measurer=None):
    measurer = measurer or Measurer(tokenizers, 8 << 20)
    ids = [row["id"] for row in rows]
    documents = Documents.from_arrow(pa.array([row["text"] for row in rows], pa.string()))
    measurer.add(documents, [row["lang"] or "" for row in rows], ids, key_hashes(ids, STRIP_LAST_PART))
    return measurer


def reported(tokenizers: dict, rows, **wanted) -> Report:
    text, tallies = measure(list(tokenizers.values()), rows).finish()
    candidates = [build.Candidate(name, name, tokenizer) for name, tokenizer in tokenizers.items()]
    return build.report("key", "text", text, tallies, candidates, build.Wanted(DEFAULT_SHAPES, **wanted))


@pytest.fixture(scope="module")
def report(tokenizers, rows):
    return reported(tokenizers, rows)


@pytest.mark.parametrize("number", range(3))
def test_group_metrics_equal_the_reference(report, tokenizers, rows, number):
    one = report.tokenizers[number]
    tokenizer = tokenizers[one.name]
    expected = reference.measured(tokenizer, rows)
    assert set(one.groups) == {group for group in expected if group is not None}
    for group, own in expected.items():
        metrics, sums = (one.overall if group is None else one.groups[group]), own["sums"]
        for name in ("documents", "bytes", "characters", "words", "tokens"):
            assert getattr(metrics, name) == sums[name], (group, name)
        assert metrics.round_trip_rate == sums["round_trips"] / sums["documents"]
        words, tokens = sums["words"], sums["tokens"]
        assert metrics.fertility == (tokens / words if words else None)
        assert metrics.continued_words == (sums["continued"] / words if words else None)
        assert metrics.bytes_per_token == (sums["bytes"] / tokens if tokens else None)
        assert metrics.characters_per_token == (sums["characters"] / tokens if tokens else None)
        assert metrics.distinct_tokens == len(own["tokens"])
        unk = tokenizer.model.unk_id
        assert metrics.unk_rate == (own["tokens"][unk] / tokens if tokens else None)
        if tokens:
            assert metrics.renyi_efficiency == pytest.approx(
                reference.renyi_efficiency(own["tokens"], tokenizer.vocab_size)
            )
        if group is not None:
            assert metrics.single_token_common_words == reference.common_in_one_token(tokenizer, own["words"])


@pytest.mark.parametrize("number", range(3))
def test_premiums_equal_the_reference(report, tokenizers, rows, number):
    one = report.tokenizers[number]
    parallel = [row for row in rows if row["id"].count(":") == 2]
    expected = {
        group: reference.premium(tokenizers[one.name], parallel, group, "en", lambda name: name.rpartition(":")[0])
        for group in one.groups
    }
    assert report.parallel.pivot == "en"
    assert one.premiums == pytest.approx(expected)
    assert one.premiums["en"] == 1
    assert one.premiums["py"] is None
    known = [value for value in expected.values() if value is not None]
    assert len(known) == 4
    assert one.gini == pytest.approx(reference.gini(known))
    assert {group: found.pairs for group, found in report.parallel.groups.items() if found.pairs} == {
        "de": 2, "en": 3, "hi": 1, "zh": 1,
    }  # fmt: skip


def test_vocabulary_by_group_is_where_a_token_is_relatively_most_frequent(report, tokenizers, rows):
    for one in report.tokenizers:
        expected = reference.measured(tokenizers[one.name], rows)
        groups = sorted(group for group in expected if group is not None)
        special = {*tokenizers[one.name].special_tokens.values()}
        counts = dict.fromkeys([*groups, "unused"], 0)
        vocab = tokenizers[one.name].model.vocab
        for token in range(one.vocab_size):
            if token in special or token >= len(vocab) or vocab[token] is None:
                continue
            shares = {
                group: expected[group]["tokens"][token] / expected[group]["sums"]["tokens"]
                for group in groups
                if expected[group]["sums"]["tokens"]
            }
            best = max(shares.values())
            counts["unused" if not best else min(g for g in shares if shares[g] == best)] += 1
        assert one.vocabulary.by_group == counts


def test_parts_merge_to_the_whole_in_any_order(tokenizers, rows):
    chosen = list(tokenizers.values())
    whole_text, whole = measure(chosen, rows).finish()
    halves = [measure(chosen, part).finish() for part in (rows[9:], rows[:4], rows[4:9])]
    text, tallies = TextTally(), [TokenTally(tokenizer.vocab_size) for tokenizer in chosen]
    for part_text, part_tallies in halves:
        text.merge(TextTally.from_bytes(part_text.to_bytes()))
        for tally, part in zip(tallies, part_tallies, strict=True):
            tally.merge(TokenTally.from_bytes(part.to_bytes()))
    assert text.to_bytes() == whole_text.to_bytes()
    # Which documents are decoded goes by their place, the same in all of these.
    assert [tally.to_bytes() for tally in tallies] == [tally.to_bytes() for tally in whole]


@pytest.mark.parametrize("dense_bytes", [1, 10_000])
def test_little_memory_changes_nothing(tokenizers, rows, dense_bytes):
    chosen = list(tokenizers.values())
    small = Measurer(chosen, 1 << 20)
    for tally in small.tokens:
        tally.dense_bytes = dense_bytes
    for row in rows:
        measure(chosen, [row], small)
    text, tallies = small.finish()
    whole_text, whole = measure(chosen, rows).finish()
    assert text.to_bytes() == whole_text.to_bytes()
    assert [tally.to_bytes() for tally in tallies] == [tally.to_bytes() for tally in whole]


def test_a_word_table_gives_the_figures_of_its_text(tokenizers, rows):
    tokenizer = tokenizers["bpe"]
    tables = {}
    for row in rows:
        tables.setdefault(row["lang"] or "", []).append(row["text"] or "")
    parts = []
    for group, texts in tables.items():
        table = shardpiece.WordTable.from_texts(texts, tokenizer.engine)
        parts.append(table.table.set_column(1, "group", pa.array([group] * len(table), pa.string())))
    measurer = TableMeasurer([tokenizer])
    measurer.add(shardpiece.WordTable(pa.concat_tables(parts), table.metadata))
    assert measurer.exact == [True]
    text, [tally] = measurer.finish()
    expected_text, [expected] = measure([tokenizer], rows).finish()
    for group, sums in tally.sums.items():
        assert sums[0] == expected.sums[group][0], group
    assert np.array_equal(tally.total(), expected.total())
    for group, sums in text.sums.items():
        assert sums[1:3].tolist() == expected_text.sums[group][1:3].tolist(), group


def test_a_word_table_of_another_engine(tokenizers):
    """Words with spaces for a tokenizer that puts ▁ before every text, and for one that has no spaces."""
    counts = {"low": 1, " low": 5, " lower": 2, "\n": 3, " sea": 4}
    table = shardpiece.WordTable.from_counts(counts, "gpt2")
    chosen = [tokenizers["unigram"], tokenizers["wordpiece"], tokenizers["bpe"]]
    measurer = TableMeasurer(chosen)
    measurer.add(table)
    assert measurer.exact == [False, False, False]
    for tokenizer, tally in zip(chosen, measurer.tokens, strict=True):
        before = len(tokenizer.encode("\n"))
        expected = 0
        for word, n in counts.items():
            ids = (
                tokenizer.encode("\n" + word) if word != "\n" and tokenizer is not chosen[2] else tokenizer.encode(word)
            )
            expected += n * (len(ids) - (before if word != "\n" and tokenizer is not chosen[2] else 0))
        assert tally.sums[""][0] == expected


def test_too_many_groups_are_no_groups(tokenizers):
    rows = [{"id": str(i), "lang": f"g{i}", "text": "x"} for i in range(2_001)]
    with pytest.raises(InputError, match=r"more than 2,000 values.*--group-column"):
        measure([tokenizers["bpe"]], rows)


def test_samples_are_one_document_of_each_group_whatever_the_order(tokenizers, rows):
    report = reported({"bpe": tokenizers["bpe"]}, rows, samples=3)
    turned = reported({"bpe": tokenizers["bpe"]}, rows[::-1], samples=3)
    assert report.samples == turned.samples
    assert [sample.group for sample in report.samples] == ["", "py", "hi"]
    for sample in report.samples:
        cut = sample.tokens["bpe"]
        assert b"".join(sample.text.encode()[a:b] for _, a, b in cut.spans) == sample.text.encode()
        assert [token for token, _, _ in cut.spans] == cut.ids
        assert {*cut.ids} <= {*report.tokenizers[0].tokens}
    assert not report.samples[0].cut
    [long] = reported({"bpe": tokenizers["bpe"]}, [{"id": "x", "lang": "", "text": "ab " * 300}]).samples
    assert (len(long.text), long.cut) == (400, True)
