"""The Tokenizer: text engine, model, special tokens and decoder as one object that encodes and decodes."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from shardpiece import storage
from shardpiece.errors import ConfigError, DocumentError, FormatError
from shardpiece.text.byte_alphabet import spell, text_bytes
from shardpiece.text.documents import Documents
from shardpiece.text.engine import TextEngine
from shardpiece.text.pretokenizers import PreTokenizer
from shardpiece.text.special import IN_TEXT, Cut
from shardpiece.tokenizer.added_tokens import AddedToken, AddedTokenCutter, check_special_tokens
from shardpiece.tokenizer.decode_stream import DecodeStream
from shardpiece.tokenizer.decoder import Decoder, ImpliedDecoder, implied_decoder
from shardpiece.tokenizer.model import Encoder, Model
from shardpiece.tokenizer.raw_words import RawWordEncoder
from shardpiece.tokenizer.sampling import Sampling, document_keys, encode_words, keys_of, piece_keys
from shardpiece.tokenizer.template import Template

__all__ = ["AddedToken", "Decoder", "Template", "Tokenizer", "check_special_tokens"]


@dataclass(frozen=True)
class Tokenizer:
    """Text engine, model and added tokens. With a byte-level model ``decode_bytes(encode(x))`` gives back what the text
    engine makes of x: x itself unless there is a normalizer, or a pre-tokenizer that drops white space.

    ``engine``: a TextEngine, or a pre-tokenizer for one without normalizer. ``special_tokens``: texts of special tokens,
    whose ids follow the model's vocabulary in this order; or ids by text, among those that the model leaves free or after
    them. Text that spells one is ordinary text to ``encode`` unless told otherwise. ``added_tokens``: tokens, special ones
    among them, that have their own ways to be found in text; those that are not special are always found, and their ids
    may be tokens of the model too. ``decoder``: None for what undoes engine and model. ``template``: what goes around a text
    on request. ``provenance``: how it was trained; no part of its identity.

    Once made, ``special_tokens`` has all special tokens, and ``added_tokens`` all tokens, both by id.
    """

    engine: TextEngine
    model: Model
    special_tokens: Mapping[str, int] = field(default_factory=dict)
    provenance: dict = field(default_factory=dict, compare=False, repr=False)
    added_tokens: Sequence[AddedToken] = field(default=(), kw_only=True)
    decoder: Decoder | None = field(default=None, kw_only=True)
    template: Template = field(default=Template(), kw_only=True)

    def __post_init__(self):
        object.__setattr__(self, "engine", TextEngine.of(self.engine))
        given = self.special_tokens
        texts = check_special_tokens(given)
        ids = given if isinstance(given, Mapping) else {text: len(self.model) + i for i, text in enumerate(texts)}
        added = {token.text: token for token in self.added_tokens}
        if len(added) != len(self.added_tokens):
            raise FormatError("an added token is listed twice")
        for text in texts:
            token = added.setdefault(text, AddedToken(text, int(ids[text])))
            if not token.special or token.id != ids[text]:
                raise FormatError(f"the special token {text!r} is among the added tokens as another one")
        tokens = tuple(sorted(added.values(), key=lambda token: (token.id, token.text)))
        object.__setattr__(self, "added_tokens", tokens)
        object.__setattr__(self, "special_tokens", {token.text: token.id for token in tokens if token.special})
        for text in texts:
            if text.encode() in self.model.vocab:
                raise FormatError(f"special token {text!r} is also an ordinary token")
        self._check_ids()

    def _check_ids(self) -> None:
        vocab = self.model.vocab
        taken: dict[int, str] = {}
        for token in self.added_tokens:
            if token.id in taken:
                raise FormatError(f"token {token.text!r} has the id {token.id}, which is another token's")
            taken[token.id] = token.text
            if token.special and token.id < len(vocab) and vocab[token.id] is not None:
                raise FormatError(f"special token {token.text!r} has the id {token.id}, which is another token's")
        unk = self.model.unk_id
        if unk is not None and unk not in taken and not (unk < len(vocab) and vocab[unk] is not None):
            raise FormatError(f"the model's unknown token has the id {unk}, which is no token")
        for i in (*self.template.before, *self.template.after):
            if i not in taken and not (0 <= i < len(vocab) and vocab[i] is not None):
                raise FormatError(f"the template has the id {i}, which is no token")

    def __repr__(self) -> str:
        return f"Tokenizer({self.vocab_size} tokens, {self.engine!r}, fingerprint {self.fingerprint[:12]}…)"

    # --- identity -----------------------------------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, special tokens included."""
        return max(len(self.model), *(token.id + 1 for token in self.added_tokens), 0)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over everything that decides ids: the text engine, vocabulary, merges, added tokens and template. Shards
        carry it."""
        cached = self.__dict__.get("_fingerprint")
        if cached is None:
            parts = {
                "engine": self.engine.fingerprint,
                "added_tokens": [token.spec for token in self.added_tokens],
                "template": self.template.spec,
            }
            state = hashlib.sha256(storage.canonical_json(parts))
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
            for token in self.added_tokens:
                cached[token.id] = token.text.encode()
            object.__setattr__(self, "_piece_list", cached)
        return cached

    # --- encoding -----------------------------------------------------------------------------------------------

    @property
    def encoder(self) -> Encoder:
        """The encoder with its tables and cache, made at first use. Not for several threads at once."""
        if self.__dict__.get("_encoder") is None:
            self.use_cache()
        return self.__dict__["_encoder"]

    def use_cache(self, cache_bytes: int = 64 << 20) -> None:
        """Begin with an encoder whose caches are empty, and have about ``cache_bytes`` together."""
        encoder = self.model.encoder(cache_bytes // 8)
        normalized = [token for token in self.added_tokens if token.normalized]
        raw = None
        if not any(token.special or token.lstrip or token.rstrip or token.single_word for token in normalized):
            texts = tuple(token.text for token in normalized)
            raw = RawWordEncoder.of(self.engine, self.model, encoder, texts, cache_bytes)
        if raw is None:
            encoder = self.model.encoder(cache_bytes)
        object.__setattr__(self, "_encoder", encoder)
        object.__setattr__(self, "_raw", (encoder, raw))

    @property
    def _raw_words(self) -> RawWordEncoder | None:
        encoder = self.encoder
        owner, raw = self.__dict__.get("_raw", (None, None))
        return raw if owner is encoder else None

    @property
    def pretokenizer(self) -> PreTokenizer:
        return self.engine.pretokenizer

    def encode_documents(
        self,
        documents: Documents,
        special_tokens_in_text: str = "text",
        sampling: Sampling | None = None,
        keys: np.ndarray | None = None,
        *,
        add_special_tokens: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]): document d is tokens[offsets[d]:offsets[d + 1]].

        ``sampling``: how to draw segmentations, by ``keys``, what document_keys makes of the documents' ids; without them
        the ids are 0, 1, 2, ... in this batch.
        ``special_tokens_in_text``: what a place is that spells a special token: "text" like any other; "token", its id
        (the longest one at each place); or "error", a DocumentError with the document. ``add_special_tokens``: put the template around every document.
        """
        if special_tokens_in_text not in IN_TEXT:
            raise ConfigError(f"special_tokens_in_text {special_tokens_in_text!r} is not one of {', '.join(IN_TEXT)}")
        keys = keys_of(len(documents), sampling, keys)
        if not self.added_tokens or (special_tokens_in_text == "text" and not self._cutter.any_ordinary):
            tokens, offsets = self._encode_between(documents, sampling, keys)
        else:
            tokens, offsets = self._encode_cut(documents, special_tokens_in_text, sampling, keys)
        return self.template.apply(tokens, offsets) if add_special_tokens else (tokens, offsets)

    def _encode_between(
        self, documents: Documents, sampling: Sampling | None, keys: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode documents in which no added tokens are searched."""
        if (sampling is None or sampling.deterministic) and (raw := self._raw_words) is not None:
            return raw.encode(documents)
        return encode_words(self.model, self.encoder, self.engine.split(documents), sampling, keys)

    def _encode_cut(
        self, documents: Documents, in_text: str, sampling: Sampling | None, keys: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Encode what stands between added tokens, and put their ids there."""
        cutter, special, refuse = self._cutter, in_text != "text", in_text == "error"
        if (sampling is None or sampling.deterministic) and (raw := self._raw_words) is not None:
            cut = cutter.cut_plain(documents, special, refuse)

            def encode_normalized(documents: Documents) -> tuple[np.ndarray, np.ndarray]:
                pieces = cutter.cut_normalized(documents, special)
                words = self.engine.pretokenizer.split(pieces.pieces, pieces.at_start)
                return self._put_between(*self.encoder.encode(words), pieces, len(documents))

            return self._put_between(*raw.encode(cut.pieces, encode_normalized), cut, len(documents))
        cut = cutter.cut(documents, special, refuse)
        try:
            words = self.engine.pretokenizer.split(cut.pieces, cut.at_start)
        except DocumentError as error:
            raise DocumentError(int(cut.owners[error.index]), error.problem) from None
        tokens, ends = encode_words(self.model, self.encoder, words, sampling, piece_keys(keys, cut.owners))
        return self._put_between(tokens, ends, cut, len(documents))

    @staticmethod
    def _put_between(tokens: np.ndarray, ends: np.ndarray, cut: Cut, n: int) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of ``n`` documents, of the pieces of a cut and of what stands behind them."""
        found = np.flatnonzero(cut.tokens >= 0)
        if len(found):
            tokens = np.insert(tokens, ends[found + 1], cut.tokens[found].astype(np.int32))
            ends[1:] += np.cumsum(cut.tokens >= 0)
        last = np.searchsorted(cut.owners, np.arange(n), side="right")
        return tokens, np.append(0, ends[last])

    @property
    def _cutter(self) -> AddedTokenCutter:
        cached = self.__dict__.get("_added_token_cutter")
        if cached is None:
            cached = AddedTokenCutter(self.added_tokens, self.engine.normalizer)
            object.__setattr__(self, "_added_token_cutter", cached)
        return cached

    def encode(self, text: str, special_tokens_in_text: str = "text", *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of a text; see encode_documents. Lone surrogates are encoded as U+FFFD."""
        documents = Documents.from_strings([text])
        return self.encode_documents(
            documents, special_tokens_in_text, add_special_tokens=add_special_tokens
        )[0].tolist()  # fmt: skip

    def encode_batch(
        self,
        texts: Sequence[str] | pa.Array | pa.ChunkedArray,
        special_tokens_in_text: str = "text",
        *,
        add_special_tokens: bool = False,
        sampling: Sampling | None = None,
        document_ids: Sequence[str | bytes | int] | pa.Array | None = None,
    ) -> pa.ListArray:
        """Token ids of many texts as list<int32>; null texts give null lists.

        Arrow input (string or binary) is read in place; invalid UTF-8 is encoded as U+FFFD, as Python's
        ``errors="replace"`` gives it. ``sampling``: draw segmentations, by the texts' ``document_ids`` (0, 1, 2, .. when
        there are none). Raises ConfigError when the batch has more than 2^31 tokens.
        """
        if isinstance(texts, str | bytes):
            raise TypeError("encode_batch takes many texts; use encode for one")
        column = texts if isinstance(texts, pa.Array | pa.ChunkedArray) else None
        if column is None and None in (texts := list(texts)):
            column = pa.array(texts, pa.string())
        documents = Documents.from_strings(texts) if column is None else Documents.from_arrow(column)
        keys = None
        if sampling is not None and document_ids is not None:
            keys = document_keys(document_ids, sampling)
        tokens, offsets = self.encode_documents(
            documents, special_tokens_in_text, sampling, keys, add_special_tokens=add_special_tokens
        )
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

    @property
    def implied_decoder(self) -> ImpliedDecoder:
        """What undoes engine and model."""
        return implied_decoder(self.engine, self.model)

    @property
    def decodes_by_pieces(self) -> bool:
        """Whether decoded text is the bytes of one token after the other, at which a UTF-8 text may be cut."""
        return self.implied_decoder.kind == "bytes" if self.decoder is None else self.decoder.is_byte_level

    def spelled_token(self, token_id: int) -> str:
        """A token as ``tokenizer.json`` spells it, one that is searched in normalized text normalized; "" where an id is no
        token."""
        return self._spelled[token_id] if 0 <= token_id < len(self._spelled) else ""

    @property
    def _spelled(self) -> list[str]:
        cached = self.__dict__.get("_spelled_list")
        if cached is None:
            one = spell if getattr(self.model, "alphabet", None) == "bytes" else bytes.decode
            cached = ["" if piece is None else one(piece) for piece in self.model.vocab]
            cached += [""] * (self.vocab_size - len(cached))
            for token in self.added_tokens:
                cached[token.id] = self._normalized_text(token)
            object.__setattr__(self, "_spelled_list", cached)
        return cached

    @property
    def _decoded_pieces(self) -> list[bytes]:
        """What each id adds to decoded text where the decoder puts bytes together."""
        if self.decoder is None or not self.decoder.is_byte_level:
            return self._pieces
        if getattr(self.model, "alphabet", None) != "bytes":
            return self._unspelled
        cached = self.__dict__.get("_decoded_piece_list")
        if cached is None:
            cached = list(self._pieces)
            for token in self.added_tokens:
                cached[token.id] = text_bytes(self._normalized_text(token))
            object.__setattr__(self, "_decoded_piece_list", cached)
        return cached

    @property
    def _unspelled(self) -> list[bytes]:
        """The bytes that tokens spell in the byte alphabet."""
        cached = self.__dict__.get("_unspelled_list")
        if cached is None:
            cached = [text_bytes(text) for text in self._spelled]
            object.__setattr__(self, "_unspelled_list", cached)
        return cached

    def _checked_ids(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> list[int]:
        """Raises ConfigError for an id outside the vocabulary."""
        ids = token_ids.tolist() if isinstance(token_ids, np.ndarray) else [int(i) for i in token_ids]
        if ids:
            self.token_bytes(min(ids))
            self.token_bytes(max(ids))
        if skip_special_tokens and self.special_tokens:
            ids = [i for i in ids if i not in self._skipped]
        return ids

    @property
    def _skipped(self) -> set[int]:
        """Ids that decoding leaves out on request. With a decoder of steps, as in Hugging Face's library, not those whose
        text is another one once it is normalized."""
        tokens = [token for token in self.added_tokens if token.special]
        if self.decoder is None:
            return {token.id for token in tokens}
        return {token.id for token in tokens if self._normalized_text(token) in self.special_tokens}

    def _normalized_text(self, token: AddedToken) -> str:
        """What a decoder of steps puts for an added token: Hugging Face's one that is searched in normalized text is
        normalized, SentencePiece's user-defined symbol is as it stands in the file."""
        normalizer = self.engine.normalizer
        if not token.normalized or normalizer is None or (self.decoder and self.decoder.is_sentencepiece):
            return token.text
        return normalizer.normalize_text(token.text)

    def decode_bytes(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> bytes:
        """The text of a sequence of ids as bytes (exact for byte-level models), special tokens as their text. Raises
        ConfigError for an id outside the vocabulary."""
        ids = self._checked_ids(token_ids, skip_special_tokens)
        if self.decoder is None:
            return self.implied_decoder.join(self._pieces, ids)
        if self.decoder.is_byte_level:
            pieces = self._decoded_pieces
            return b"".join([pieces[i] for i in ids])
        spelled = self._spelled
        return self.decoder.text([spelled[i] for i in ids if spelled[i]]).encode()

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """The text of a sequence of ids; bytes that are not valid UTF-8 (a sequence cut inside a character) become
        U+FFFD. ``skip_special_tokens``: without special tokens."""
        return self.decode_bytes(token_ids, skip_special_tokens).decode(errors="replace")

    def decode_stream(self, skip_special_tokens: bool = False) -> DecodeStream:
        """Decodes ids that come one after the other: what its ``push`` and ``finish`` return is together the decoded
        text, each part as soon as it is valid UTF-8."""
        return DecodeStream(self, skip_special_tokens)
