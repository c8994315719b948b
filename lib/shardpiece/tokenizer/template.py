"""What is put around the ids of a text on request: the tokens of beginning and end that a model was trained with."""

from dataclasses import dataclass

import numpy as np

from shardpiece.errors import FormatError


@dataclass(frozen=True)
class Template:
    """``before`` and ``after``: ids around one text, such as those of [CLS] and [SEP]."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "before", tuple(int(i) for i in self.before))
        object.__setattr__(self, "after", tuple(int(i) for i in self.after))

    def __bool__(self) -> bool:
        return bool(self.before or self.after)

    @property
    def spec(self) -> dict:
        return {"before": list(self.before), "after": list(self.after)}

    @classmethod
    def from_spec(cls, spec: dict) -> "Template":
        """Raises FormatError for a damaged one."""
        if not isinstance(spec, dict) or set(spec) != {"before", "after"}:
            raise FormatError("the stored template is damaged")
        if not all(isinstance(ids, list) and all(type(i) is int for i in ids) for ids in spec.values()):
            raise FormatError("the stored template is damaged (ids are numbers)")
        return cls(tuple(spec["before"]), tuple(spec["after"]))

    def apply(self, tokens: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32, offsets int64 [documents + 1]) with the template around every document."""
        if not self:
            return tokens, offsets
        n = len(offsets) - 1
        before, after = np.array(self.before, np.int32), np.array(self.after, np.int32)
        around = np.arange(n + 1) * (len(before) + len(after))
        out = np.empty(len(tokens) + int(around[-1]), np.int32)
        shifted = offsets + around
        inside = np.ones(len(out), bool)
        for k, token in enumerate(before):
            out[shifted[:-1] + k] = token
            inside[shifted[:-1] + k] = False
        for k, token in enumerate(after):
            out[shifted[1:] - len(after) + k] = token
            inside[shifted[1:] - len(after) + k] = False
        out[inside] = tokens
        return out, shifted
