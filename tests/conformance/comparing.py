"""Compare shardpiece with a reference on many texts at once, and cut what differs down to the shortest text that does."""

import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

import shardpiece
from shardpiece.errors import ShardpieceError
from tests.conformance.known import known
from tests.conformance.references import Encoded, Peer, Tiktoken


def ours(tokenizer: shardpiece.Tokenizer, texts: list[str] | pa.Array, in_text: str, **how) -> Encoded:
    column = pa.array(texts, pa.large_string()) if isinstance(texts, list) else texts
    return Encoded.from_arrow(tokenizer.encode_batch(column, special_tokens_in_text=in_text, **how))


def digests(encoded: Encoded) -> np.ndarray:
    """128 bits of each text's ids."""
    view = memoryview(np.ascontiguousarray(encoded.tokens, np.int32)).cast("B")
    ends = (encoded.offsets * 4).tolist()
    found = b"".join(xxhash.xxh3_128_digest(view[a:b]) for a, b in itertools.pairwise(ends))
    return np.frombuffer(found, np.uint64).reshape(-1, 2)


class Kept:
    """Digests of a reference's ids, kept in files from run to run when there is a directory for them."""

    def __init__(self, directory: Path | None = None):
        self.directory = directory

    def digests(self, peer: Peer, name: str, texts: list[str], in_text: str) -> np.ndarray:
        if self.directory is None:
            return digests(peer.encode(texts, in_text))
        key = xxhash.xxh3_128()
        for part in (peer.version, name, in_text, *texts):
            raw = part.encode()
            key.update(len(raw).to_bytes(8, "little") + raw)
        path = self.directory / name / f"{key.hexdigest()}.npy"
        if path.exists():
            return np.load(path)
        found = digests(peer.encode(texts, in_text))
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, found)
        return found


def shortest(text: str, differs: Callable[[str], bool], seconds: float = 10.0) -> str:
    """A text of parts of ``text`` that still differs and from which no single character can be left out (delta debugging,
    Zeller 1999), or what the time was enough for."""
    until = time.monotonic() + seconds
    size = max(1, len(text) // 2)
    while True:
        at, shorter = 0, False
        while at < len(text):
            tried = text[:at] + text[at + size :]
            if time.monotonic() > until:
                return text
            if differs(tried):
                text, shorter = tried, True
            else:
                at += size
        if size == 1 and not shorter:
            return plainer(text, differs, until)
        size = max(1, min(size, len(text)) // 2)


def plainer(text: str, differs: Callable[[str], bool], until: float) -> str:
    """The same with ordinary characters where they do."""
    for at in range(len(text)):
        for plain in "a ":
            if time.monotonic() < until and text[at] > "~" and differs(text[:at] + plain + text[at + 1 :]):
                text = text[:at] + plain + text[at + 1 :]
                break
    return text


@dataclass(frozen=True)
class Difference:
    section: str
    in_text: str
    text: str
    ours: tuple[int, ...] | str
    expected: tuple[int, ...] | str

    def like(self, other: "Difference") -> bool:
        return (self.text, self.ours, self.expected) == (other.text, other.ours, other.expected)

    def __str__(self) -> str:
        return (
            f"[{self.section}, {self.in_text}] {self.text!a}\n    ours      {self.ours}\n    reference {self.expected}"
        )


@dataclass
class Report:
    """``wrong``: how many texts differ per section; ``shown``: the shortest form of some of them; ``excepted``: texts
    whose difference is the reference's own bug."""

    name: str
    checked: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)
    excepted: dict[str, int] = field(default_factory=dict)
    shown: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, section: str, texts: int, differences: Iterable[Difference] = (), wrong: int | None = None) -> None:
        differences = list(differences)
        self.checked[section] = self.checked.get(section, 0) + texts
        self.wrong[section] = self.wrong.get(section, 0) + (len(differences) if wrong is None else wrong)
        self.shown += [one for one in dict.fromkeys(differences) if not any(map(one.like, self.shown))]

    def fails(self, section: str, why: str) -> None:
        self.add(section, 0, wrong=1)
        self.notes.append(f"{section} **fails**: {why}")

    def __str__(self) -> str:
        lines = [f"## {self.name}"]
        for section, texts in self.checked.items():
            wrong, excepted = self.wrong[section], self.excepted.get(section, 0)
            lines.append(
                f"- {section}: {texts:,} checked, {f'**{wrong:,} differ**' if wrong else 'all the same'}"
                + (f" ({excepted:,} where the reference is wrong)" if excepted else "")
            )
        return "\n".join([*lines, *(f"- {note}" for note in self.notes), *map(str, self.shown)])

    @property
    def ok(self) -> bool:
        return not any(self.wrong.values())


class Comparison:
    def __init__(self, name: str, tokenizer: shardpiece.Tokenizer, peer: Peer, kept: Kept | None = None, show: int = 6):
        self.tokenizer, self.peer, self.kept, self.show = tokenizer, peer, kept or Kept(), show
        self.report = Report(name)
        # A library that never looks for special tokens in text has nothing to say about finding them.
        self.modes = ("text", "token") if peer.special_tokens else ("text",)

    def both(self, text: str, in_text: str) -> tuple[tuple[int, ...] | str, tuple[int, ...]]:
        try:
            mine = tuple(ours(self.tokenizer, [text], in_text)[0])
        except ShardpieceError as error:
            mine = f"{type(error).__name__}: {error}"
        return mine, tuple(self.peer.encode([text], in_text)[0])

    def ids(self, section: str, texts: list[str], in_text: str) -> None:
        """Compare the ids of texts."""
        expected = self.kept.digests(self.peer, self.report.name, texts, in_text)
        found = digests(ours(self.tokenizer, texts, in_text))
        differing = np.flatnonzero((found != expected).any(axis=1)).tolist()
        real = [i for i in differing if not known(self.report.name, texts[i])]
        self.report.excepted[section] = self.report.excepted.get(section, 0) + len(differing) - len(real)
        room = self.show - sum(shown.section == section for shown in self.report.shown)
        real_texts = sorted((texts[i] for i in real), key=len)
        self.report.add(section, len(texts), (self.smallest(section, text, in_text) for text in real_texts[: max(room, 0)]), len(real))  # fmt: skip

    def smallest(self, section: str, text: str, in_text: str) -> Difference:
        def differs(tried: str) -> bool:
            mine, expected = self.both(tried, in_text)
            return mine != expected and not known(self.report.name, tried)

        if not differs(text):  # the state of an encoder must not decide ids
            return Difference(f"{section} (only within its batch)", in_text, text, *self.both(text, in_text))
        text = shortest(text, differs)
        return Difference(section, in_text, text, *self.both(text, in_text))

    def templates(self, section: str, texts: list[str]) -> None:
        """Compare ids with what goes around a text."""
        in_text = self.modes[-1]
        found = ours(self.tokenizer, texts, in_text, add_special_tokens=True)
        expected = self.peer.encode(texts, in_text, template=True)
        wrong = np.flatnonzero((digests(found) != digests(expected)).any(axis=1)).tolist()
        worst = sorted(wrong, key=lambda i: len(texts[i]))[: self.show]
        self.report.add(section, len(texts), (Difference(section, in_text, texts[i], tuple(found[i]), tuple(expected[i])) for i in worst), len(wrong))  # fmt: skip

    def decoding(self, section: str, batch: list[list[int]], skip: bool = False) -> None:
        """Compare the texts of sequences of ids."""
        expected = self.peer.decode(batch, skip)
        wrong = [ids for ids, text in zip(batch, expected, strict=True) if self.decoded(ids, skip) != text]
        wrong.sort(key=len)
        self.report.add(section, len(batch), (self.smallest_ids(section, ids, skip) for ids in wrong[: self.show]), len(wrong))  # fmt: skip

    def decoded(self, ids: list[int], skip: bool) -> bytes:
        """In bytes where the reference gives them."""
        if isinstance(self.peer, Tiktoken):
            return self.tokenizer.decode_bytes(ids)
        return self.tokenizer.decode(ids, skip_special_tokens=skip).encode()

    def smallest_ids(self, section: str, ids: list[int], skip: bool) -> Difference:
        def both(some: list[int]) -> tuple[bytes, bytes]:
            return self.decoded(some, skip), self.peer.decode([some], skip)[0]

        def differs(tried: str) -> bool:
            mine, expected = both([ord(c) for c in tried])
            return mine != expected

        some = [ord(c) for c in shortest("".join(map(chr, ids)), differs, 3)]  # a string of ids: all lie below 0x110000
        return Difference(section, "ids", str(some), *map(ascii, both(some)))

    def streaming(self, section: str, batch: list[list[int]]) -> None:
        """What a stream gives in parts is what decoding gives at once."""
        differences = []
        for ids in batch:
            stream = self.tokenizer.decode_stream()
            parts = [*map(stream.push, ids), stream.finish()]
            whole = self.tokenizer.decode(ids)
            if "".join(parts) != whole:
                differences.append(Difference(section, "ids", str(ids), ascii(parts), ascii(whole)))
        differences.sort(key=lambda one: len(one.text))
        self.report.add(section, len(batch), differences[: self.show], len(differences))

    def lossless(self, section: str, texts: list[str | bytes], in_text: str) -> None:
        """decode(encode(x)) == x, in bytes; bytes that are no UTF-8 are U+FFFD."""
        raw = [text.encode() if isinstance(text, str) else text for text in texts]
        encoded = ours(self.tokenizer, pa.array(raw, pa.large_binary()), in_text)
        whole = self.tokenizer.decode_bytes(encoded.tokens)
        expected = [one.decode(errors="replace").encode() for one in raw]
        differences = []
        if whole != b"".join(expected):
            for i, text in enumerate(expected):
                back = self.tokenizer.decode_bytes(encoded[i])
                if back != text:
                    differences.append(Difference(section, in_text, ascii(raw[i]), ascii(back), ascii(text)))
        differences.sort(key=lambda one: len(one.text))
        self.report.add(section, len(texts), differences[: self.show], len(differences))
