"""Ids that come one after the other decoded to text, without ever giving half a character."""

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardpiece.tokenizer.tokenizer import Tokenizer


class DecodeStream:
    """Made by ``Tokenizer.decode_stream``. What ``push`` returns for each id, and ``finish`` in the end, are together what
    ``decode`` gives for all of them, unless what a decoder does to a token depends on much later ones.

    Where tokens are bytes put together, a token is decoded once. Other decoders decode the tokens since the last text that
    was given out again with each new one, as the stream of Hugging Face's library does.
    """

    def __init__(self, tokenizer: "Tokenizer", skip_special_tokens: bool = False):
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace") if tokenizer.decodes_by_pieces else None
        self._ids: list[int] = []  # of which the text is not all given out, and those before that it depends on
        self._given = ""  # the text of the first ids that was given out
        self._read = 0  # how many these are

    def push(self, token_id: int) -> str:
        """The text that this id completes, "" while there is none. Raises ConfigError for an id outside the vocabulary."""
        if self._utf8 is not None:
            return self._utf8.decode(self._tokenizer.decode_bytes([token_id], self._skip))
        self._ids.append(int(token_id))
        text = self._tokenizer.decode(self._ids, self._skip)
        if len(text) <= len(self._given) or text.endswith("\ufffd") or not text.startswith(self._given):
            return ""
        new = text[len(self._given) :]
        rest = self._tokenizer.decode(self._ids[self._read :], self._skip)
        if rest and text.endswith(rest):
            self._ids, text = self._ids[self._read :], rest
        # Else they say nothing at the beginning, a lone ▁ perhaps, and what comes behind would be at the beginning too.
        self._read, self._given = len(self._ids), text
        return new

    def finish(self) -> str:
        """What is left: bytes that no valid text has come of, as U+FFFD. The stream can be used anew."""
        if self._utf8 is not None:
            rest = self._utf8.decode(b"", final=True)
        else:
            rest = self._tokenizer.decode(self._ids, self._skip)[len(self._given) :]
        self._ids, self._given, self._read = [], "", 0
        return rest
