"""Files written by shardpiece and loaded by the reference libraries, and the three settings of special tokens in text."""

import tempfile
from importlib import import_module
from pathlib import Path

import shardpiece
from shardpiece.errors import DocumentError, FormatError
from tests.conformance.comparing import Comparison, Difference, digests, ours
from tests.conformance.references import Peer, Reference, Tiktoken, rank_file, sentencepiece, tokenizer_json

# format: (module with problem() and to_bytes(), name of the file)
WRITERS = {
    "huggingface": ("huggingface", "tokenizer.json"),
    "tiktoken": ("tiktoken", "written.tiktoken"),
    "sentencepiece": ("sentencepiece_tokenizer", "written.model"),
}


def loaded_by_reference(kind: str, path: Path, original: Peer) -> Peer:
    """``original`` is asked for what a rank file does not say."""
    if kind == "huggingface":
        return tokenizer_json(path)
    if kind == "sentencepiece":
        return sentencepiece(path)
    import tiktoken

    encoding = original.encoding
    ranks = rank_file(path)
    return Tiktoken(tiktoken.Encoding("written", pat_str=encoding._pat_str, mergeable_ranks=ranks, special_tokens=encoding._special_tokens))  # fmt: skip


def round_trip(comparison: Comparison, reference: Reference, strings: list[str]) -> None:
    """read → write → the reference library encodes the same; read again, the same fingerprint. Formats that cannot say what
    the tokenizer does say so; the one it came in must be able to."""
    tokenizer, peer, report = comparison.tokenizer, comparison.peer, comparison.report
    # Without special tokens a file of another format may still be compared; with them only where both sides know them.
    before = {mode: digests(ours(tokenizer, strings, mode)) for mode in ("text", "token")}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "artifact"
        shardpiece.save(tokenizer, str(place))
        again = shardpiece.load(str(place))
        same(report, "artifact: fingerprint", again.fingerprint, tokenizer.fingerprint)
        same(report, "artifact: ids", *(digests(ours(t, strings, "token")).tobytes() for t in (again, tokenizer)))
        for kind, (module, name) in WRITERS.items():
            writer = import_module(f"shardpiece.tokenizer.formats.{module}")
            reason = writer.problem(tokenizer)
            if reason is not None:
                report.notes.append(f"cannot be written as {kind}: {reason}")
                if kind == reference.format:
                    report.add(f"{kind}: written", 1, [Difference(f"{kind}: written", "-", name, reason, "a file")])
                continue
            path = Path(directory) / kind / name
            path.parent.mkdir()
            path.write_bytes(writer.to_bytes(tokenizer))
            if kind == "tiktoken" and not isinstance(peer, Tiktoken):
                continue  # its pattern and special tokens stand in no file
            theirs = loaded_by_reference(kind, path, peer)
            for mode, mine in before.items():
                found = digests(theirs.encode(strings, mode))
                wrong = [i for i, differs in enumerate((found != mine).any(axis=1)) if differs]
                worst = sorted((strings[i] for i in wrong), key=len)[: comparison.show]
                report.add(
                    f"{kind}: ids of what was written", len(strings),
                    [Difference(f"{kind}: written", mode, text, ours(tokenizer, [text], mode)[0], theirs.encode([text], mode)[0])
                     for text in worst], len(wrong),
                )  # fmt: skip
            if kind == reference.format:
                options = reference.reading(tokenizer) if kind == "tiktoken" else {}
                try:
                    again = shardpiece.load(str(path), **options).fingerprint
                except FormatError as error:
                    again = f"FormatError: {error}"
                same(report, f"{kind}: fingerprint", again, tokenizer.fingerprint)


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
