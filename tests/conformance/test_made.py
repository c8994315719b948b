"""Tokenizers made at random from everything a tokenizer.json or a .model can say: read exactly, or refused with the name of
what is not."""

from importlib import import_module

import pytest

import shardpiece
from shardpiece.errors import FormatError
from tests.conformance import files
from tests.conformance.comparing import Comparison
from tests.conformance.references import Tokenizers
from tests.conformance.texts import Adversary
from tests.conftest import TEXTS

KINDS = {"tokenizers": ("made", "tokenizer.json"), "sentencepiece": ("made_sentencepiece", "made.model")}


def compare(kind: str, seed: int, directory, strings: int) -> Comparison | str:
    """The comparison, or why there is none."""
    pytest.importorskip(kind)
    module, name = KINDS[kind]
    try:
        raw, peer = import_module(f"tests.conformance.{module}").made(seed)
    except RuntimeError as error:
        return f"the reference refuses the settings: {error}"
    directory = directory / f"{kind}-{seed}"
    directory.mkdir()
    path = directory / name
    path.write_bytes(raw)
    try:
        tokenizer = shardpiece.load(str(path))
    except FormatError as error:
        return str(error)
    added = peer.added or [*tokenizer.special_tokens, *(token.text for token in tokenizer.added_tokens)]
    texts = next(Adversary(peer.pieces(), added, str(seed)).strings(strings))
    comparison = Comparison(f"{kind} made {seed}", tokenizer, peer, show=1)
    try:
        expected = [peer.encode(texts, mode) for mode in comparison.modes]
        for skip in (False, True):
            peer.decode([expected[-1][i] for i in range(len(texts))], skip)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        # tokenizers: "AddedVocabulary bad split", "not a char boundary", decoders that strip more than there is
        return f"the reference panics: {error}"
    for mode in comparison.modes:
        comparison.ids("made", texts, mode)
    comparison.decoding("decoded", [expected[-1][i] for i in range(len(texts))])
    if isinstance(peer, Tokenizers):
        comparison.decoding("decoded without special tokens", [expected[-1][i] for i in range(len(texts))], skip=True)
    comparison.templates("with a template", ["", *filter(None, TEXTS)])
    for through in (through_its_format, through_an_artifact):
        try:
            again = through(kind, tokenizer, directory).fingerprint
        except FormatError as error:
            again = f"FormatError: {error}"
        files.same(comparison.report, through.__name__, again, tokenizer.fingerprint)
    return comparison


def through_its_format(kind: str, tokenizer: shardpiece.Tokenizer, directory) -> shardpiece.Tokenizer:
    content = files.written({"tokenizers": "huggingface"}.get(kind, kind), tokenizer)
    if not isinstance(content, dict):
        raise FormatError(content)
    [(name, raw)] = content.items()
    path = directory / f"again-{name}"
    path.write_bytes(raw)
    return shardpiece.load(str(path))


def through_an_artifact(kind: str, tokenizer: shardpiece.Tokenizer, directory) -> shardpiece.Tokenizer:
    shardpiece.save(tokenizer, str(directory / "artifact"))
    return shardpiece.load(str(directory / "artifact"))


def check(kind: str, seeds: range, directory, strings: int) -> None:
    refused, wrong = {}, []
    for seed in seeds:
        found = compare(kind, seed, directory, strings)
        if isinstance(found, str):
            refused[seed] = found
        elif not found.report.ok:
            wrong.append(str(found.report))
    assert not wrong, "\n".join([*wrong, f"the files are in {directory}"])
    assert len(refused) <= len(seeds) // 3, refused


@pytest.mark.parametrize("kind", ["tokenizers", "sentencepiece"])
def test_some(kind, tmp_path):
    check(kind, range(5), tmp_path, 60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tokenizers", "sentencepiece"])
def test_many(kind, tmp_path):
    check(kind, range(1000), tmp_path, 300)
