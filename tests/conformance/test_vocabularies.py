"""Published vocabularies encode and decode as their reference libraries do: a few texts of every kind here, all of them with
``pytest -m slow tests/conformance`` or ``python -m tests.conformance.run``."""

import pytest

from tests.conformance import files, texts
from tests.conformance.comparing import Comparison, Kept
from tests.conformance.references import REFERENCES
from tests.conformance.run import SECTIONS, adversary, run

# One of each kind of model and file.
FEW = ["cl100k_base", "gpt2-hf", "roberta-base-hf", "clip-hf", "wordllama-l2", "t5-small-hf", "bert-uncased-minilm", "llama2-sp", "t5-base-unigram"]  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_a_few_texts_of_every_kind(shared, name):
    reference = REFERENCES[name]
    comparison = Comparison(name, reference.load(shared), reference.peer(shared), show=1)
    passages = texts.sample(shared, FEW.index(name), len(FEW))
    strings = next(adversary(comparison).strings(1500))
    for mode in ("text", "token"):
        comparison.ids("adversarial", strings, mode)
        comparison.ids("corpus", passages, mode)
        comparison.ids("vectors", [text for text, _ in texts.vectors(shared, name)], mode)
    for batch in texts.code_points(iter(texts.some_code_points(600, FEW.index(name)))):
        comparison.ids("code points", batch, "text")
    encoded = comparison.peer.encode(passages + strings[:500], "token")
    comparison.decoding("decoded", [encoded[i] for i in range(len(encoded))])
    if reference.lossless:
        comparison.lossless("lossless", passages + strings + texts.fuzzed_bytes(300, 2), "text")
    files.special_tokens(comparison, strings[:100])
    assert comparison.report.ok, str(comparison.report)


@pytest.mark.parametrize("name", REFERENCES)
def test_expected_ids_of_other_projects(shared, name):
    """What others expect is what the reference gives, so that comparing with it is enough."""
    if name not in FEW:
        pytest.skip("all of them in the slow tests")
    check_vectors(shared, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
def test_expected_ids_of_other_projects_in_all(shared, name):
    check_vectors(shared, name)


def check_vectors(shared, name):
    cases = texts.vectors(shared, name)
    if not cases:
        pytest.skip(f"no vectors for {name}")
    reference = REFERENCES[name]
    tokenizer = reference.load(shared)
    for text, expected in cases:
        found = [tokenizer.encode(text, special_tokens_in_text=mode) for mode in ("text", "token")]
        assert expected in found or tokenizer.encode(text, add_special_tokens=True) == expected, ascii(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
def test_everything(shared, name):
    report = run(REFERENCES[name], [*SECTIONS], 100_000, Kept(), 2).report
    assert report.ok, str(report)
