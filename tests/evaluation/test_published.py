"""Published vocabularies on the shared corpora: what is known of them shows."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardpiece
from shardpiece.config import load_config
from shardpiece.evaluation.measure import Measurer
from shardpiece.evaluation.parallel import STRIP_LAST_PART, key_hashes
from shardpiece.evaluation.schema import Report
from shardpiece.pipeline.encode.documents import chunks
from shardpiece.pipeline.evaluate.stage import evaluate
from shardpiece.text.documents import Documents

pytestmark = pytest.mark.slow
NAMES = ["r50k_base", "cl100k_base", "o200k_base", "llama2-sp", "bert-base-uncased"]


@pytest.fixture(scope="module")
def report(session, shared, tmp_path_factory):
    output = tmp_path_factory.mktemp("published")
    config = load_config(
        None,
        {
            "input": [str(shared / "corpus")],
            "output": str(output),
            "id_column": "id",
            "group_column": "lang",
            "evaluate.tokenizers": [str(shared / "vocabs" / name) for name in NAMES],
            "evaluate.parallel_column": "id",
            "evaluate.parallel_key": "strip_last_part",
            "evaluate.glitch_tokens": 5_000,
        },
    )
    evaluate(session, config)
    return Report.model_validate_json((output / "evaluation" / "metrics.json").read_text())


def test_premiums(report):
    gpt2, cl100k, o200k, *_ = report.tokenizers
    assert report.parallel.pivot == "en"
    pairs = {group: found.pairs for group, found in report.parallel.groups.items()}
    for group in ("te", "my", "hi", "ka", "th", "km"):
        if pairs.get(group):
            print(group, pairs[group], [round(one.premiums[group], 2) for one in report.tokenizers])
    print("gini", [round(one.gini, 3) for one in report.tokenizers])
    assert gpt2.premiums["te"] > 5
    assert o200k.premiums["te"] < gpt2.premiums["te"] / 3
    assert o200k.gini < cl100k.gini < gpt2.gini
    assert cl100k.premiums["de"] < 2


def test_glitch_tokens_of_gpt2(report):
    gpt2 = report.tokenizers[0]
    print(gpt2.glitch.counts)
    found = {one.text: one for one in gpt2.glitch.candidates}
    for text in ("·SolidGoldMagikarp", "·RandomRedditorWithNo", "·TheNitromeFan"):
        print(text, found[text])
        assert found[text].count == 0


def test_figures_of_gpt2(report):
    gpt2, *others = report.tokenizers
    assert gpt2.vocab_size == 50_257
    assert gpt2.costs["GPT-2 small"].parameters == 38_597_376
    assert gpt2.costs["GPT-2 small"].cache_bytes_per_token == 36_864
    assert gpt2.overall.round_trip_rate == 1
    assert gpt2.numbers.alike < 0.6
    assert others[1].numbers.grouping == "groups of 3 from the left"
    assert others[2].numbers.grouping == "single digits"
    assert gpt2.white_space.indentation["4 spaces"][0] > others[0].white_space.indentation["4 spaces"][0]
    for one in report.tokenizers:
        python = one.groups["zxx-x-python"]
        print(one.name, one.overall.bytes_per_token, one.groups["en"].fertility, python.white_space_bytes_per_token)


def test_takes_less_than_ten_times_as_long_as_encoding(shared):
    table = pa.concat_tables([pq.read_table(path) for path in sorted(shared.glob("corpus/*/part-00000.parquet"))])
    rows = table.take(pa.array(range(0, len(table), 4)))
    documents, groups, ids = Documents.from_arrow(rows["text"]), rows["lang"].to_pylist(), rows["id"].to_pylist()
    tokenizers = [shardpiece.load(str(shared / "vocabs" / name)) for name in NAMES]
    measurer = Measurer(tokenizers)
    for _ in range(2):  # first the kernels, then with warm caches, the worst case for the ratio
        began = time.process_time()
        for _, chunk in chunks(documents):
            for tokenizer in tokenizers:
                tokenizer.encode_documents(chunk)
        encoding = time.process_time() - began
        began = time.process_time()
        keys = key_hashes(ids, STRIP_LAST_PART)
        for first, chunk in chunks(documents):
            here = slice(first, first + len(chunk))
            measurer.add(chunk, groups[here], ids[here], keys[here])
        measurer.finish()
        measuring = time.process_time() - began
    print(f"{documents.size / 1e6:.1f} MB: encoding {encoding:.2f} s, measuring {measuring:.2f} s")
    assert measuring < 10 * encoding
