"""What cannot be computed is null, and the report says why; nothing is NaN."""

import json
import math

import pytest

import shardpiece
from shardpiece.evaluation import build
from shardpiece.evaluation.definitions import DEFINITIONS
from shardpiece.evaluation.measure import TableMeasurer
from shardpiece.evaluation.schema import GroupMetrics, Report
from tests.evaluation.test_measure import reported


def floats(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from floats(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from floats(inner)
    elif isinstance(value, float):
        yield value


def checked(report: Report) -> Report:
    again = json.loads(report.model_dump_json())
    assert all(math.isfinite(value) for value in floats(again))
    assert Report.model_validate(again) == report
    return report


def test_groups_without_text_words_or_translations(tokenizers, rows):
    report = checked(reported(tokenizers, rows))
    notes = "\n".join(report.notes)
    assert "Groups without text, all of whose figures are open: 'none'" in notes
    assert "Groups without words, whose figures per word are open: 'signs'" in notes
    assert "Groups without texts parallel to those of 'en', whose premium is open: '', 'none', 'py', 'signs'" in notes
    for one in report.tokenizers:
        assert one.groups["none"].bytes_per_token is one.groups["none"].fertility is None
        assert one.groups["signs"].fertility is None
        assert one.groups["signs"].bytes_per_token is not None
    assert {
        name for name in GroupMetrics.model_fields if name not in ("documents", "bytes", "characters", "words")
    } <= set(DEFINITIONS)


@pytest.mark.parametrize("texts", [[], [""], ["", None]])
def test_no_text_at_all(tokenizers, texts):
    rows = [{"id": f"a:{i}:en", "lang": "en", "text": text} for i, text in enumerate(texts)]
    report = checked(reported(tokenizers, rows))
    assert "The corpus has no text" in report.notes[0]
    assert all(one.overall.bytes_per_token is None and one.gini is None for one in report.tokenizers)
    assert all(one.costs["GPT-2 small"].attention_ratio is None for one in report.tokenizers)


def test_no_parallel_texts(tokenizers, rows):
    alone = [row for row in rows if row["lang"] == "py"]
    assert any(note.startswith("No premiums: no ids") for note in checked(reported(tokenizers, alone)).notes)
    english = [row for row in rows if row["lang"] == "en"]
    report = checked(reported(tokenizers, english, pivot="fr"))
    assert any("the pivot 'fr' has no parallel texts" in note for note in report.notes)
    assert report.tokenizers[0].premiums == {"en": None}


def test_text_of_another_script_alone(tokenizers):
    rows = [{"id": "1", "lang": "ka", "text": "მდინარე ზღვისკენ მიედინება " * 10}]
    report = checked(reported(tokenizers, rows))
    wordpiece = report.tokenizers[1]
    assert wordpiece.overall.unk_rate == 1
    assert any("More than half of the tokens are the unknown token" in note for note in wordpiece.notes)
    assert any("than 2% are unknown" in note and note.endswith("'ka'") for note in wordpiece.notes)
    assert any("No document comes back" in note for note in wordpiece.notes)
    assert wordpiece.overall.round_trip_rate == 0


def test_a_tokenizer_that_cannot_decode(tokenizers, rows, monkeypatch):
    def fails(self, *_, **__):
        raise shardpiece.ShardpieceError("no decoder")

    tokenizer = tokenizers["wordpiece"]
    from shardpiece.evaluation import measure

    plain = measure._decoded_alike

    def undecodable(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(type(tokenizer), "decode_bytes", fails)
            return plain(*arguments)

    monkeypatch.setattr(measure, "_decoded_alike", undecodable)
    report = checked(reported({"wordpiece": tokenizer}, rows))
    assert report.tokenizers[0].notes[0] == f"Cannot decode: of {len(rows)} documents the tokens gave no text"


def test_word_tables_say_what_they_leave_open(tokenizers):
    table = shardpiece.WordTable.from_counts({" low": 5, " lower": 2}, "gpt2")
    measurer = TableMeasurer(list(tokenizers.values()))
    measurer.add(table)
    text, tallies = measurer.finish()
    candidates = [build.Candidate(name, name, one, exact=False) for name, one in tokenizers.items()]
    report = checked(build.report("", "words", text, tallies, candidates, build.Wanted({})))
    assert report.notes[0].startswith("Evaluated on a word table")
    assert all(one.overall.round_trip_rate is None and one.overall.tokens for one in report.tokenizers)
    assert all("Has another text engine" in one.notes[0] for one in report.tokenizers)
