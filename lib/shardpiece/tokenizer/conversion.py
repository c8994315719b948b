"""A tokenizer of one format written in another: refused where the format cannot say what the tokenizer does, read back and
compared before anything is visible at its place."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from shardpiece import storage
from shardpiece.errors import ConfigError, FormatError, OutputError
from shardpiece.tokenizer import artifact, loading
from shardpiece.tokenizer.formats import (
    companions,
    gpt2_files,
    huggingface,
    sentencepiece_tokenizer,
    subword_nmt,
    tekken,
    tiktoken,
    wordpiece_vocab,
)
from shardpiece.tokenizer.tokenizer import Tokenizer

Files = dict[str, bytes]


@dataclass(frozen=True)
class Target:
    """A format to write. ``names``: of its files; ``problem``: why it cannot say what a tokenizer does; ``files``: their content, by name; ``read``: the
    tokenizer of such files, what they do not hold taken from the one they were made of. ``suffix``: of formats of one file,
    with which a path names the file and not its directory. ``holds``: of "ids" and "special tokens", what is in the files.
    ``nearly``: why the library that reads the files encodes rare texts in another way, None where it does not."""

    names: tuple[str, ...]
    problem: Callable[[Tokenizer], str | None]
    files: Callable[[Tokenizer], Files]
    read: Callable[[Files, Tokenizer], Tokenizer]
    suffix: str | None = None
    holds: tuple[str, ...] = ("ids", "special tokens")
    nearly: Callable[[Tokenizer], str | None] = lambda tokenizer: None


def _one_file(name: str, to_bytes, problem, read, **more) -> Target:
    return Target(
        (name,),
        problem,
        lambda tokenizer: {name: to_bytes(tokenizer)},
        lambda files, tokenizer: read(files[name], tokenizer),
        name[name.rindex(".") :],
        **more,
    )


def _huggingface_problem(tokenizer: Tokenizer) -> str | None:
    try:
        huggingface.to_json(tokenizer)
    except FormatError as error:
        return str(error)
    return None


def _read_huggingface(raw: bytes, tokenizer: Tokenizer) -> Tokenizer:
    from shardpiece.tokenizer.formats.huggingface_read import read_tokenizer_json

    return read_tokenizer_json(raw, "the tokenizer.json")


def _read_gpt2(files: Files, tokenizer: Tokenizer) -> Tokenizer:
    vocab, merges = gpt2_files.NAMES[0]
    return gpt2_files.read_files(files[vocab], files[merges], vocab, config=files[companions.CONFIG_FILE])


def _read_wordpiece(files: Files, tokenizer: Tokenizer) -> Tokenizer:
    name = wordpiece_vocab.VOCABULARY_FILE
    return wordpiece_vocab.read_vocabulary(files[name], name, config=files[companions.CONFIG_FILE])


TARGETS: dict[str, Target] = {
    "shardpiece": Target(
        (artifact.METADATA_FILE, artifact.TOKENIZER_FILE, *artifact.OPTIONAL_FILES),
        _huggingface_problem,
        artifact.to_files,
        lambda files, tokenizer: artifact.from_files(files),
    ),
    "huggingface": _one_file(
        "tokenizer.json", huggingface.to_bytes, _huggingface_problem, _read_huggingface, nearly=huggingface.nearly
    ),
    "tiktoken": _one_file(
        "tokenizer.tiktoken",
        tiktoken.to_bytes,
        tiktoken.problem,
        lambda raw, tokenizer: tiktoken.read_ranks(
            raw, "the rank file", tokenizer.pretokenizer, dict(tokenizer.special_tokens)
        ),
        holds=("ids",),
    ),
    "sentencepiece": _one_file(
        "tokenizer.model",
        sentencepiece_tokenizer.to_bytes,
        sentencepiece_tokenizer.problem,
        lambda raw, tokenizer: sentencepiece_tokenizer.from_bytes(raw, "the .model"),
    ),
    "wordpiece": Target(
        (wordpiece_vocab.VOCABULARY_FILE, companions.CONFIG_FILE),
        wordpiece_vocab.problem,
        wordpiece_vocab.to_files,
        _read_wordpiece,
    ),
    "gpt2": Target((*gpt2_files.NAMES[0], companions.CONFIG_FILE), gpt2_files.problem, gpt2_files.to_files, _read_gpt2),
    "tekken": _one_file(
        "tekken.json",
        tekken.to_bytes,
        tekken.problem,
        lambda raw, tokenizer: tekken.from_json(json.loads(raw), "the tekken.json"),
    ),
    "subword-nmt": _one_file(
        "bpe.codes",
        subword_nmt.to_bytes,
        subword_nmt.problem,
        lambda raw, tokenizer: subword_nmt.read_codes(raw, "the codes"),
        holds=(),
    ),
}


@dataclass(frozen=True)
class Converted:
    """``files``: the paths written; ``texts``: how many texts the result was compared on; ``other``: on how many of them it
    is another one, 0 unless that was allowed."""

    tokenizer: Tokenizer
    files: list[str]
    texts: int
    other: int = 0


def convert(
    tokenizer: Tokenizer,
    destination: str,
    to: str,
    overwrite: bool = False,
    source: str = "",
    *,
    approximate: bool = False,
) -> Converted:
    """Write ``tokenizer`` in the format ``to``, a key of TARGETS. ``destination``: the file, where the format is one file and
    the path has its suffix, else the directory. ``source``: where the tokenizer came from, which is never written over.
    ``approximate``: write also what the format's library encodes in another way now and then.

    Raises FormatError with the reason when the format cannot say what the tokenizer does, and OutputError when the place is
    taken. Files are written under temporary names and renamed.
    """
    if to not in TARGETS:
        raise ConfigError(f"format {to!r} is not one of {', '.join(TARGETS)}")
    target = TARGETS[to]
    if (reason := target.problem(tokenizer)) is not None:
        raise FormatError(f"{source or 'the tokenizer'} cannot be written as {to}: {reason}")
    if not approximate and (reason := target.nearly(tokenizer)) is not None:
        raise FormatError(
            f"{source or 'the tokenizer'} cannot be written as {to} exactly: {reason}. With --approximate it is written "
            f"nevertheless"
        )
    destination = storage.absolute(destination)
    single = target.suffix is not None and destination.endswith(target.suffix) and not storage.is_directory(destination)
    _check_place(destination, single, to, overwrite, source)
    files = target.files(tokenizer)
    texts, other = check(tokenizer, target.read(files, tokenizer), target, approximate)
    if single:
        [content] = files.values()
        storage.write_bytes(destination, content)
        return Converted(tokenizer, [destination], texts, other)
    if to == "shardpiece":
        for name in (artifact.METADATA_FILE, *artifact.OPTIONAL_FILES):
            storage.remove(storage.join(destination, name))
    storage.write_files(destination, files)
    return Converted(tokenizer, [storage.join(destination, name) for name in files], texts, other)


def _check_place(destination: str, single: bool, to: str, overwrite: bool, source: str) -> None:
    """Raises OutputError where something is that would be lost, or read instead of what is written."""
    if source and storage.absolute(source) == destination:
        raise OutputError(f"{destination}: source and destination are the same")
    there = storage.exists(destination)
    if there and storage.is_directory(destination):
        names = storage.list_names(destination)
        if names and not overwrite:
            raise OutputError(
                f"{destination}: not empty. Pass --overwrite to replace a tokenizer, or choose another place."
            )
        others = [name for name in loading.candidates(names) if name not in TARGETS[to].names]
        if others:
            raise OutputError(
                f"{destination}: holds {others[0]}, another tokenizer's, which would be taken for this one: choose another "
                f"place"
            )
    elif there and not single:
        raise OutputError(f"{destination}: a file, where {to} needs a directory")
    elif there and not overwrite:
        raise OutputError(f"{destination}: exists. Pass --overwrite to replace it, or choose another place.")


# --- comparing --------------------------------------------------------------------------------------------------------

_SAMPLES = (
    "The quick brown fox's 12,345.67 jumps — it's LAZY; they'll've DON'T!\n\n  Indented\ttabs\r\n\r\n  ",
    "naïve café ÅNGSTRÖM ﬁ ß ſ İi e\u0301 \u00a0\u3000\u200b\u2028x",
    "日本語のテキスト、ひらがな カタカナ 漢字。 Ελληνικά кириллица हिन्दी עברית العربية 한국어 ไทย",
    "def f(x):\n    return {'a': x ** 2, \"b\": [1, 2, 3]}  # comment\n",
    "👩‍👩‍👧 🏳️‍🌈 \ufffd \U000e0041 \x00\x07\x7f",
    "   leading and trailing   ",
    "",
)


def probe_texts(tokenizer: Tokenizer) -> list[str]:
    """Texts that a wrong file would most likely encode in another way: pieces beside each other, runs, special tokens."""
    ids = list(range(0, tokenizer.vocab_size, max(1, tokenizer.vocab_size // 4000)))
    pieces = [tokenizer.token_bytes(i).decode(errors="replace").replace("▁", " ") for i in ids]
    joined = ["".join(pieces[i : i + 8]) for i in range(0, len(pieces), 8)]
    spaced = [" ".join(pieces[i : i + 8]) for i in range(4, len(pieces), 8)]
    runs = [c * n for c in "a =-0\n\tあ" for n in (2, 3, 5, 17, 64, 200)]
    special = [token.text for token in tokenizer.added_tokens][:50]
    spelled = [f"a{text}b {text} {text}{text}" for text in special]
    return [*_SAMPLES, *runs, *spelled, *joined, *spaced]


# Of the texts, so many may come out otherwise when that is allowed: they are harder than most.
_TOLERATED = 0.1


def check(tokenizer: Tokenizer, again: Tokenizer, target: Target, approximate: bool = False) -> tuple[int, int]:
    """(how many texts ``again``, what was read from the files, was compared on; how many of them it encodes in another way).
    Raises FormatError for the first of these, with ``approximate`` when they are more than a tenth."""
    texts = probe_texts(tokenizer)
    if "special tokens" in target.holds and again.added_tokens != tokenizer.added_tokens:
        raise FormatError("the file as it is read again has other added tokens; nothing was written")
    modes = ("text", "token") if "special tokens" in target.holds else ("text",)
    other: dict[str, None] = {}
    for mode in modes:
        ours, theirs = (one.encode_batch(texts, mode) for one in (tokenizer, again))
        if "ids" in target.holds and ours.equals(theirs):
            continue
        for text, a, b in zip(texts, ours.to_pylist(), theirs.to_pylist(), strict=True):
            if ("ids" in target.holds and a != b) or not _same_pieces(tokenizer, a, again, b):
                other[text] = None
    if len(other) > (_TOLERATED * len(texts) if approximate else 0):
        raise FormatError(
            f"the file as it is read again encodes {next(iter(other))!r:.100} in another way; nothing was written"
        )
    return len(texts), len(other)


def _same_pieces(tokenizer: Tokenizer, ids: list[int], again: Tokenizer, others: list[int]) -> bool:
    """Whether two cuts of a text are the same, whatever the ids; characters that ``again`` does not know do not count."""
    known = again.model.vocab.ids
    pieces = [tokenizer.token_bytes(i) for i in ids]
    found = [again.token_bytes(i) for i in others if i != again.model.unk_id]
    return [piece for piece in pieces if piece in known] == found
