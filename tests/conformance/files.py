"""Files written by shardpiece and loaded by the reference libraries, and the three settings of special tokens in text."""

import tempfile
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import numpy as np
import xxhash

import shardpiece
from shardpiece.errors import DocumentError, FormatError
from shardpiece.tokenizer.conversion import TARGETS
from tests.conformance.comparing import Comparison, Difference, digests, ours
from tests.conformance.references import (
    Encoded,
    Peer,
    Reference,
    SentencePiece,
    Tiktoken,
    bert,
    gpt2_files,
    rank_file,
    sentencepiece,
    tekken,
    tokenizer_json,
)

# format: (module with problem() and to_bytes() or to_files(), name of the file if it is one)
WRITERS = {
    "huggingface": ("huggingface", "tokenizer.json"),
    "tiktoken": ("tiktoken", "written.tiktoken"),
    "tekken": ("tekken", "tekken.json"),
    "sentencepiece": ("sentencepiece_tokenizer", "written.model"),
    "gpt2": ("gpt2_files", None),
    "wordpiece": ("wordpiece_vocab", None),
}


def written(kind: str, tokenizer: shardpiece.Tokenizer) -> dict[str, bytes] | str:
    """Content by name of file, or why there is none."""
    module, name = WRITERS[kind]
    if (reason := TARGETS[kind].nearly(tokenizer)) is not None:
        return f"not exactly: {reason}"
    writer = import_module(f"shardpiece.tokenizer.formats.{module}")
    try:
        return {name: writer.to_bytes(tokenizer)} if name else writer.to_files(tokenizer)
    except FormatError as error:
        return str(error)


def loaded_by_reference(kind: str, path: Path, original: Peer, tokenizer: shardpiece.Tokenizer) -> Peer | None:
    """``original`` is asked for what a file does not say; None when it does not know."""
    match kind:
        case "huggingface":
            return tokenizer_json(path)
        case "sentencepiece":
            return sentencepiece(path)
        case "tekken":
            return tekken(path)
        case "gpt2":
            return gpt2_files(path.parent, [*tokenizer.special_tokens])
        case "wordpiece":
            return bert(path, tokenizer.engine.normalizer.spec["lowercase"])
    if not isinstance(original, Tiktoken):
        return None
    import tiktoken

    encoding, ranks = original.encoding, rank_file(path)
    return Tiktoken(tiktoken.Encoding("written", pat_str=encoding._pat_str, mergeable_ranks=ranks, special_tokens=encoding._special_tokens))  # fmt: skip


def round_trip(comparison: Comparison, reference: Reference, strings: list[str]) -> None:
    """read → write → the reference library encodes the same; read again, the same fingerprint. Formats that cannot say what
    the tokenizer does say so; the one it came in must be able to."""
    tokenizer, report = comparison.tokenizer, comparison.report
    before = {mode: ours(tokenizer, strings, mode) for mode in ("text", "token")}
    with tempfile.TemporaryDirectory() as directory:
        for kind in ("shardpiece", *WRITERS):
            path = Path(directory) / kind
            path.mkdir()
            try:
                if kind == "shardpiece":
                    shardpiece.save(tokenizer, str(path))
                    read_again(comparison, kind, path, {}, before["token"], strings)
                else:
                    one_format(comparison, reference, kind, path, before, strings)
            except Exception:
                report.fails(f"written as {kind}", traceback.format_exc(limit=-4))


def one_format(
    comparison: Comparison, reference: Reference, kind: str, path: Path, before: dict[str, Encoded], strings: list[str]
) -> None:
    tokenizer, report = comparison.tokenizer, comparison.report
    content = written(kind, tokenizer)
    if isinstance(content, str):
        report.notes.append(f"cannot be written as {kind}: {content}")
        if kind == reference.format:
            report.add(f"written as {kind}", 1, [Difference(f"written as {kind}", "-", "", content, "a file")])
        return
    for name, raw in content.items():
        (path / name).write_bytes(raw)
    theirs = loaded_by_reference(kind, path / next(iter(content)), comparison.peer, tokenizer)
    if theirs is None:
        return
    # A library knows special tokens in text by what its files say, if at all.
    modes = before if theirs.special_tokens == tokenizer.special_tokens else ["text"]
    for mode in modes:
        found, mine = theirs.encode(strings, mode), before[mode]
        wrong = np.flatnonzero((digests(found) != digests(mine)).any(axis=1)).tolist()
        worst = sorted(wrong, key=lambda i: len(strings[i]))[: comparison.show]
        report.add(
            f"written as {kind}, ids of the reference", len(strings),
            [Difference(f"written as {kind}", mode, strings[i], tuple(mine[i]), tuple(found[i])) for i in worst], len(wrong),
        )  # fmt: skip
    options = reference.reading(tokenizer) if kind == "tiktoken" else {}
    if kind == reference.format:
        read_again(
            comparison,
            kind,
            path if len(content) > 1 else path / next(iter(content)),
            options,
            before["token"],
            strings,
        )


def written_peers(comparison: Comparison, directory: Path) -> dict[str, tuple[Peer, str]]:
    """By format, the reference library with what was written for it, and a name of that content; formats that cannot say
    the tokenizer are not there."""
    peers = {}
    for kind in WRITERS:
        content = written(kind, comparison.tokenizer)
        if isinstance(content, str):
            continue
        path = directory / kind
        path.mkdir()
        for name, raw in content.items():
            (path / name).write_bytes(raw)
        peer = loaded_by_reference(kind, path / next(iter(content)), comparison.peer, comparison.tokenizer)
        if peer is not None:
            digest = xxhash.xxh3_64_hexdigest(b"\0".join(content.values()))
            peers[kind] = peer, f"{comparison.report.name}-{kind}-{digest}"
    return peers


def whole(comparison: Comparison, lossless: bool, batches: Iterable[list[str]]) -> None:
    """Every text of the corpora through each written file and its library, and back from ids to text."""
    with tempfile.TemporaryDirectory() as directory:
        peers = written_peers(comparison, Path(directory))
    for strings in batches:
        encoded = ours(comparison.tokenizer, strings, "text")
        mine = digests(encoded)
        for kind, (peer, name) in peers.items():
            theirs = comparison.kept.digests(peer, name, strings, "text")
            wrong = np.flatnonzero((theirs != mine).any(axis=1)).tolist()
            worst = sorted(wrong, key=lambda i: len(strings[i]))[: comparison.show]
            found = dict(zip(worst, peer.encode([strings[i] for i in worst], "text"), strict=True)) if worst else {}
            section = f"corpus, written as {kind}"
            comparison.report.add(
                section, len(strings),
                [Difference(section, "text", strings[i], tuple(encoded[i]), tuple(found[i])) for i in worst], len(wrong),
            )  # fmt: skip
        if lossless:
            comparison.lossless("corpus, lossless", strings, "text")
        if isinstance(comparison.peer, SentencePiece):
            comparison.decoding("corpus, decoded", [encoded[i] for i in range(len(encoded))])


def read_again(
    comparison: Comparison, kind: str, path: Path, options: dict, before: Encoded, strings: list[str]
) -> None:
    tokenizer, report = comparison.tokenizer, comparison.report
    again = shardpiece.load(str(path), **options)
    same(report, f"written as {kind} and read: fingerprint", again.fingerprint, tokenizer.fingerprint)
    found = ours(again, strings, "token")
    same(report, f"written as {kind} and read: ids", found.tokens.tolist(), before.tokens.tolist())


def same(report, section: str, found, expected) -> None:
    differs = [] if found == expected else [Difference(section, "-", "", str(found)[:200], str(expected)[:200])]
    report.add(section, 1, differs)


def special_tokens(comparison: Comparison, strings: list[str]) -> None:
    """ "error" refuses exactly the texts in which "token" finds one; and each special token is found alone and in text."""
    tokenizer, peer, report = comparison.tokenizer, comparison.peer, comparison.report
    special = tokenizer.special_tokens
    if peer.special_tokens:
        same(report, "special tokens", dict(sorted(special.items())), dict(sorted(peer.special_tokens.items())))
    strings = strings + [frame.format(token) for token in [*special][:300] for frame in ("{0}", "a{0}b", "x {0} {0}")]
    unk = {text for text, i in special.items() if i == peer.unk_id}
    found = peer if peer.special_tokens else None
    encoded = found.encode(strings, "token") if found else ours(tokenizer, strings, "token")
    ids = set(special.values()) - {peer.unk_id}
    differences, wrong, checked = [], 0, 0
    for i, text in enumerate(strings):
        spells = any(token in text for token in special)
        if any(token in text for token in unk):
            continue
        if not found and not spells:
            continue
        expected = bool(ids & set(encoded[i])) if found else spells
        checked += 1
        try:
            tokenizer.encode(text, special_tokens_in_text="error")
            refused = False
        except DocumentError:
            refused = True
        if refused != expected:
            wrong += 1
            differences.append(Difference("error", "error", text, f"refused: {refused}", f"refused: {expected}"))
        if not found and not ids & set(encoded[i]):
            wrong += 1
            differences.append(Difference("token", "token", text, str(encoded[i]), "an id of a special token"))
    differences.sort(key=lambda one: len(one.text))
    report.add("special tokens in text: error", checked, differences[: comparison.show], wrong)
