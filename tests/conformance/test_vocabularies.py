"""Published vocabularies encode and decode as their reference libraries do: a few texts of every kind here, all of them with
``pytest -m slow tests/conformance`` or ``python -m tests.conformance.run``."""

import pytest

from tests.conformance import files, texts
from tests.conformance.comparing import Comparison, Kept
from tests.conformance.references import REFERENCES
from tests.conformance.run import SECTIONS, adversary, run

# One of each kind of model and file.
FEW = ["cl100k_base", "roberta-base-hf", "clip-hf", "wordllama-l2", "t5-small-hf", "bert-uncased-minilm", "llama2-sp", "t5-base-unigram"]  # fmt: skip


@pytest.fixture(scope="module", params=FEW)
def loaded(request, shared):
    """(name, tokenizer, reference library with the vocabulary)"""
    reference = REFERENCES[request.param]
    return request.param, reference.load(shared), reference.peer(shared)


def test_a_few_texts_of_every_kind(shared, loaded):
    comparison = Comparison(*loaded, show=1)
    number = FEW.index(loaded[0])
    passages = texts.sample(shared, number, len(FEW) * 2)
    strings = next(adversary(comparison).strings(1500))
    for mode in comparison.modes:
        comparison.ids("adversarial", strings, mode)
        comparison.ids("corpus", passages, mode)
    for batch in texts.code_points(iter(texts.some_code_points(500, number))):
        comparison.ids("code points", batch, "text")
    encoded = comparison.peer.encode(passages + strings[:500], "token")
    comparison.decoding("decoded", [encoded[i] for i in range(len(encoded))])
    comparison.templates("with a template", strings[:300])
    if REFERENCES[loaded[0]].lossless:
        comparison.lossless("lossless", passages + strings + texts.fuzzed_bytes(300, 2), "text")
    files.special_tokens(comparison, strings[:100])
    assert comparison.report.ok, str(comparison.report)


def test_expected_ids_of_other_projects(shared, loaded):
    check_vectors(shared, *loaded[:2])


def check_vectors(shared, name, tokenizer):
    """Some projects look for special tokens in text, some put those of the template around it."""
    for text, expected in texts.vectors(shared, name):
        found = [tokenizer.encode(text, special_tokens_in_text=mode) for mode in ("text", "token")]
        assert expected in found or tokenizer.encode(text, add_special_tokens=True) == expected, ascii(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCES)
def test_everything(shared, name):
    comparison = run(REFERENCES[name], [*SECTIONS], 100_000, Kept(), 2)
    assert comparison.report.ok, str(comparison.report)
    check_vectors(shared, name, comparison.tokenizer)
