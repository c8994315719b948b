"""Differences that are the reference's own bug, each with the proof. A text is excepted only for the vocabulary named."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """``applies``: whether a text meets the bug."""

    vocabularies: tuple[str, ...]
    proof: str
    applies: Callable[[str], bool]


KNOWN: list[Known] = []


def known(vocabulary: str, text: str) -> bool:
    return any(vocabulary in one.vocabularies and one.applies(text) for one in KNOWN)
