"""Which ids special tokens get: in front of the vocabulary or behind it, with free slots so that its size can be padded."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardpiece.errors import ConfigError
from shardpiece.tokenizer.tokenizer import check_special_tokens
from shardpiece.train_config import TrainConfig

PLACES = ("back", "front")


@dataclass(frozen=True)
class Layout:
    """``special_tokens``: in the order of their ids; ``at``: "front", ids from 0, or "back", after the learned tokens.
    ``reserved_slots``: so many special tokens ``<|reserved_0|>``, ``<|reserved_1|>``, … follow them, for later use.
    ``multiple_of``: more slots, at the back, until the number of ids is a multiple of this (embedding tables of 64 or 128
    rows). Raises ConfigError for what cannot be."""

    special_tokens: Sequence[str] = ()
    at: str = "back"
    reserved_slots: int = 0
    multiple_of: int = 1

    def __post_init__(self):
        object.__setattr__(self, "special_tokens", check_special_tokens(self.special_tokens))
        if self.at not in PLACES:
            raise ConfigError(f"special_tokens_at {self.at!r} is not one of {', '.join(PLACES)}")
        if self.reserved_slots < 0 or self.multiple_of < 1:
            raise ConfigError("reserved_slots is 0 or more, multiple_of 1 or more")

    @classmethod
    def of(cls, config: TrainConfig) -> "Layout":
        return cls(config.special_tokens, config.special_tokens_at, config.reserved_slots, config.multiple_of)

    @property
    def size(self) -> int:
        """Ids that are not learned tokens, padding aside."""
        return len(self.special_tokens) + self.reserved_slots

    @property
    def first(self) -> int:
        """The id of the first learned token."""
        return self.size if self.at == "front" else 0

    def room(self, vocab_size: int, least: int, what: str) -> int:
        """How many tokens the model may have in a vocabulary of ``vocab_size``. Raises ConfigError when that is fewer than
        the ``least`` it needs, ``what`` they are."""
        room = vocab_size - self.size
        if room < least:
            raise ConfigError(
                f"vocab_size {vocab_size:,} is too small: {what} and {self.size:,} special tokens need {least + self.size:,}"
            )
        return room

    def ids(self, n_tokens: int, taken: Sequence[str] = ()) -> dict[str, int]:
        """The id of every special token and slot around ``n_tokens`` learned tokens; ``taken``: names no slot may have."""
        padding = -(n_tokens + self.size) % self.multiple_of
        names, number = [], 0
        while len(names) < self.reserved_slots + padding:
            name = f"<|reserved_{number}|>"
            if name not in self.special_tokens and name not in taken:
                names.append(name)
            number += 1
        texts = [*self.special_tokens, *names[: self.reserved_slots]]
        start = 0 if self.at == "front" else n_tokens
        ids = {text: start + i for i, text in enumerate(texts)}
        for i, name in enumerate(names[self.reserved_slots :]):
            ids[name] = n_tokens + self.size + i
        return ids

    def reserved_texts(self, others: int = 0) -> tuple[bytes, ...]:
        """What no learned token may spell; ``others``: how many names of slots may be taken already."""
        n = self.reserved_slots + self.multiple_of + len(self.special_tokens) + others
        names = [f"<|reserved_{i}|>" for i in range(n)]
        return tuple(text.encode() for text in (*self.special_tokens, *names))
