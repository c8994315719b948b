"""The Tokenizer: text engine, model, special tokens and decoder as one object that encodes and decodes."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from shardpiece import storage
from shardpiece.errors import ConfigError, DocumentError, FormatError
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.text.special import IN_TEXT, LONGEST, SpecialTokenCutter
from shardpiece.tokenizer.decoder import Decoder, decoder_of
from shardpiece.tokenizer.model import Encoder, Model
from shardpiece.tokenizer.sampling import Sampling, encode_words, keys_of, piece_keys


def check_special_tokens(tokens: Iterable[str]) -> tuple[str, ...]:
    """Raises ConfigError for what cannot be special tokens."""
    tokens = tuple(tokens)
    for token in tokens:
        if not isinstance(token, str) or not token or any("\ud800" <= c <= "\udfff" for c in token):
            raise ConfigError(f"special token {token!a} is no text")
        if len(token.encode()) > LONGEST:
            raise ConfigError(f"special token {token[:40]!r}... has more than {LONGEST} bytes")
    if len(set(tokens)) != len(tokens):
        raise ConfigError(f"a special token is listed twice: {', '.join(tokens)}")
    return tokens


@dataclass(frozen=True)
class Tokenizer:
    """Text engine, model and special tokens. With a byte-level model ``decode_bytes(encode(x))`` gives back what the text
    engine makes of x: x itself unless there is a normalizer, or a pre-tokenizer that drops white space.

    ``engine``: a TextEngine, or a pre-tokenizer for one without normalizer. ``special_tokens``: texts of the special
    tokens, whose ids follow the model's vocabulary in this order; or ids by text, among those that the model leaves free or
    after them. Text that spells one is ordinary text to ``encode`` unless told otherwise. ``provenance``: how it was
    trained; no part of its identity.
    """

    engine: TextEngine
    model: Model
    special_tokens: Mapping[str, int] = field(default_factory=dict)
    provenance: dict = field(default_factory=dict, compare=False, repr=False)
    decoder: Decoder = field(init=False, repr=False)

    def __post_init__(self):
        object.__setattr__(self, "engine", TextEngine.of(self.engine))
        given = self.special_tokens
        texts = check_special_tokens(given)
        ids = given if isinstance(given, Mapping) else {text: len(self.model) + i for i, text in enumerate(texts)}
        special = {text: int(ids[text]) for text in sorted(texts, key=ids.__getitem__)}
        object.__setattr__(self, "special_tokens", special)
        object.__setattr__(self, "decoder", decoder_of(self.engine, self.model))
        vocab = self.model.vocab
        ordinary = set(vocab)
        taken = set()
        for text, i in special.items():
            if text.encode() in ordinary:
                raise FormatError(f"special token {text!r} is also an ordinary token")
            if i < 0 or i in taken or (i < len(vocab) and vocab[i] is not None):
                raise FormatError(f"special token {text!r} has the id {i}, which is another token's")
            taken.add(i)
        unk = self.model.unk_id
        if unk is not None and unk not in taken and not (unk < len(vocab) and vocab[unk] is not None):
            raise FormatError(f"the model's unknown token has the id {unk}, which is no token")

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, {self.engine!r}, fingerprint {self.fingerprint[:12]}…)"

    # --- identity -----------------------------------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, special tokens included."""
        return max(len(self.model), *(i + 1 for i in self.special_tokens.values()), 0)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything that decides ids: the text engine, vocabulary, merges and special tokens. Shards carry it."""
        cached = self.__dict__.get("_fingerprint")
        if cached is None:
            state = hashlib.sha256(
                storage.canonical_json({"engine": self.engine.fingerprint, "special_tokens": self.special_tokens})
            )
            for part in self.model.identity():
                state.update(part)
            cached = state.hexdigest()
            object.__setattr__(self, "_fingerprint", cached)
        return cached

    def special_id(self, token: str) -> int:
        """The id of a special token. Raises ConfigError naming those there are."""
        try:
            return self.special_tokens[token]
        except KeyError:
            known = ", ".join(self.special_tokens) or "none"
            raise ConfigError(f"the tokenizer has no special token {token!r} (it has: {known})") from None

    def token_bytes(self, token_id: int) -> bytes:
        """The piece an id stands for, as its model spells it (``##ing``, ``▁the``). Raises ConfigError for an id outside the vocabulary."""
        pieces = self._pieces
        if not 0 <= token_id < len(pieces):
            raise ConfigError(f"token id {token_id} is outside the vocabulary of {self.vocab_size} tokens")
        return pieces[token_id]

    @property
    def _pieces(self) -> list[bytes]:
        """What each id says; ids that are no token say nothing."""
        cached = self.__dict__.get("_piece_list")
        if cached is None:
            cached = [piece or b"" for piece in self.model.pieces()]
            cached += [b""] * (self.vocab_size - len(cached))
            for text, i in self.special_tokens.items():
                cached[i] = text.encode()
            object.__setattr__(self, "_piece_list", cached)
        return cached

    # --- encoding -----------------------------------------------------------------------------------------------

    @property
    def encoder(self) -> Encoder:
        """The encoder with its tables and cache, made at first use. Not for several threads at once."""
        cached = self.__dict__.get("_encoder")
        if cached is None:
            cached = self.model.encoder()
            object.__setattr__(self, "_encoder", cached)
        return cached

    @property
    def pretokenizer(self) -> PreTokenizer:
        return self.engine.pretokenizer

    def encode_documents(
        self,
        documents: Documents,
        special_tokens_in_text: str = "text",
        sampling: Sampling | None = None,
        keys: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]].

        ``sampling``: how to draw segmentations, by ``keys``, what document_keys makes of the documents' ids; without them
        the ids are 0, 1, 2, ... in this batch.
        ``special_tokens_in_text``: what a place is that spells a special token: "text" like any other; "token", its id
        (the longest one at each place, found before normalization); or "error", a DocumentError with the document.
        """
        if special_tokens_in_text not in IN_TEXT:
            raise ConfigError(f"special_tokens_in_text {special_tokens_in_text!r} is not one of {', '.join(IN_TEXT)}")
        if special_tokens_in_text == "error":
            self._cutter.refuse(documents)
        keys = keys_of(len(documents), sampling, keys)
        if special_tokens_in_text != "token":
            return encode_words(self.model, self.encoder, self.engine.split(documents), sampling, keys)
        cut = self._cutter.cut(documents)
        try:
            words = self.engine.split(cut.pieces, cut.at_start)
        except DocumentError as error:
            raise DocumentError(int(cut.owners[error.index]), error.problem) from None
        tokens, ends = encode_words(self.model, self.encoder, words, sampling, piece_keys(keys, cut.owners))
        if cut.removed:
            found = np.flatnonzero(cut.tokens >= 0)
            tokens = np.insert(tokens, ends[found + 1], self._special_ids[cut.tokens[found]])
            ends[1:] += np.cumsum(cut.tokens >= 0)
        last = np.searchsorted(cut.owners, np.arange(len(documents)), side="right")
        return tokens, np.append(0, ends[last])

    @property
    def _cutter(self) -> SpecialTokenCutter:
        cached = self.__dict__.get("_special_token_cutter")
        if cached is None:
            cached = SpecialTokenCutter([*self.special_tokens])
            object.__setattr__(self, "_special_token_cutter", cached)
        return cached

    @property
    def _special_ids(self) -> np.ndarray:
        """The ids in the order of the cutter's tokens."""
        return np.array([*self.special_tokens.values()], np.int32)

    def encode(self, text: str, special_tokens_in_text: str = "text") -> list[int]:
        """Token ids of a text. Lone surrogates are encoded as U+FFFD."""
        return self.encode_documents(Documents.from_strings([text]), special_tokens_in_text)[0].tolist()

    def encode_batch(
        self, texts: Sequence[str] | pa.Array | pa.ChunkedArray, special_tokens_in_text: str = "text"
    ) -> pa.ListArray:
        """Token ids of many texts as list<int32>; null texts give null lists.

        Arrow input (string or binary) is read in place; invalid UTF-8 is encoded as U+FFFD, as Python's
        ``errors="replace"`` gives it. Raises ConfigError when the batch has more than 2^31 tokens.
        """
        if isinstance(texts, str | bytes):
            raise TypeError("encode_batch takes many texts; use encode for one")
        column = texts if isinstance(texts, pa.Array | pa.ChunkedArray) else None
        if column is None and None in (texts := list(texts)):
            return self.encode_batch(pa.array(texts, pa.string()), special_tokens_in_text)
        documents = Documents.from_strings(texts) if column is None else Documents.from_arrow(column)
        tokens, offsets = self.encode_documents(documents, special_tokens_in_text)
        if offsets[-1] >= 2**31:
            raise ConfigError(
                f"the batch has {offsets[-1]:,} tokens, more than a list array holds: use smaller batches"
            )
        mask = None
        if column is not None and column.null_count:
            nulls = column.is_null()
            mask = nulls.combine_chunks() if isinstance(nulls, pa.ChunkedArray) else nulls
            if isinstance(mask, pa.ChunkedArray):
                mask = pa.concat_arrays(mask.chunks)
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(tokens, pa.int32()), mask=mask)

    # --- decoding -----------------------------------------------------------------------------------------------

    def decode_bytes(self, token_ids: Iterable[int]) -> bytes:
        """The text of a sequence of ids as bytes (exact for byte-level models), special tokens as their text. Raises
        ConfigError for an id outside the vocabulary."""
        ids = token_ids.tolist() if isinstance(token_ids, np.ndarray) else [int(i) for i in token_ids]
        if ids:
            self.token_bytes(min(ids))
            self.token_bytes(max(ids))
        return self.decoder.join(self._pieces, ids)

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of a sequence of ids; bytes that are not valid UTF-8 (a sequence cut inside a character) become
        U+FFFD."""
        return self.decode_bytes(token_ids).decode(errors="replace")
