"""Normalizers: what happens to documents before they are cut into words.

One object counts, trains and encodes; its ``spec`` lies in the artifacts and holds everything that decides a result.
Results depend neither on the Unicode version of the running Python nor on that of any library, but for regular
expressions: all else walks frozen tables (``frozen_data``), and ``TABLES`` says in the spec which. The tables were
settled by comparing every one of the 1,112,064 code points with the references, tokenizers 0.23 and sentencepiece 0.2:
normalization forms are of Unicode 9.0, as there, so a character that came later neither changes nor combines; lowercase
is Rust's of Unicode 17.0, character by character (no final sigma); accents are all marks of Unicode 9.0 for
"strip_accents" and only nonspacing ones of an older table for "bert", which also leaves unassigned characters alone.

All steps but regular expressions that no automaton expresses work on whole batches in compiled loops; forms and character maps first look for
something to change, and give a batch that has nothing back as it is.
"""

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
import regex

from shardpiece import storage
from shardpiece.errors import DocumentError, ShardpieceWarning
from shardpiece.text.dfa import DFA, compile_pattern
from shardpiece.text.documents import Documents
from shardpiece.text.normalization import character_kernels as k
from shardpiece.text.normalization import charsmap_kernels, tables
from shardpiece.text.normalization import edit_kernels as edit
from shardpiece.text.normalization.charsmap import Charsmap, double_array, grapheme_classes
from shardpiece.text.normalization.charsmap_rules import named_charsmap
from shardpiece.text.normalization.settings import NORMALIZERS, TABLES, parse, parse_spec
from shardpiece.text.regex_syntax import UnsupportedPattern
from shardpiece.text.splitter import Splitter
from shardpiece.text.step_kernels import mark_matches
from shardpiece.text.user_patterns import compiled, matches

__all__ = ["NORMALIZERS", "TABLES", "Normalizer", "normalizer"]

Step = Callable[[Documents], Documents]


def normalizer(setting) -> "Normalizer | None":
    """Build one from a user's setting: a name of NORMALIZERS, a dict with "type" and parameters, a list of these (one
    after the other), None or "none" for no normalization. Raises ConfigError."""
    settings = parse(setting)
    return Normalizer(settings) if settings else None


class Normalizer:
    """Built by ``normalizer`` or ``from_spec``. ``settings``: checked steps, one after the other."""

    def __init__(self, settings: list[dict]):
        self._settings = settings

    @classmethod
    def from_spec(cls, spec: dict) -> "Normalizer":
        """The normalizer of an artifact. Raises FormatError when it is damaged or of other tables."""
        self = cls(parse_spec(spec))
        for step in self._settings:
            if "table" in step:
                step["table"] = Charsmap.from_base64(step["table"])
            installed = f"regex {regex.__version__}"
            if step.get("engine", installed) != installed:
                warnings.warn(
                    f"normalizer: replaced by {step['engine']} when it was made, by {installed} now: characters that "
                    f"Unicode has changed in between may be replaced differently",
                    ShardpieceWarning,
                    stacklevel=2,
                )
        return self

    @classmethod
    def sentencepiece(cls, charsmap: bytes | Charsmap, **options) -> "Normalizer":
        """The normalizer of a SentencePiece model: its precompiled_charsmap and the other fields of its normalizer_spec
        (add_dummy_prefix and so on)."""
        return cls(parse({"type": "sentencepiece", "table": charsmap, **options}))

    @cached_property
    def spec(self) -> dict:
        """Everything that decides the result, in JSON."""
        steps = []
        for step in self._settings:
            stored = {key: value for key, value in step.items() if key not in ("rule", "table")}
            if "rule" in step or "table" in step:
                stored["table"] = _charsmap(step).to_base64()
            steps.append(stored)
        return steps[0] if len(steps) == 1 else {"type": "sequence", "steps": steps}

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(storage.canonical_json(self.spec)).hexdigest()

    @cached_property
    def kept_symbols(self) -> frozenset[str]:
        """Texts that come out of it as they are, wherever they stand."""
        last = self._settings[-1]
        return frozenset(
            last["user_defined_symbols"] if len(self._settings) == 1 and "user_defined_symbols" in last else ()
        )

    @cached_property
    def _steps(self) -> list[Step]:
        return [_STEPS[step["type"]](step) for step in self._settings]

    def character_maps(self) -> tuple[tables.CharacterMap, tables.CharacterMap | None] | None:
        """(what each character becomes; a map that changes those with which that is not all there is to it, or None), None
        where characters are not mapped one by one."""
        step = self._settings[0]
        if len(self._settings) != 1 or step["type"] not in (*_CHARACTER_MAPS, "bert"):
            return None
        return _bert_maps(step) if step["type"] == "bert" else (_CHARACTER_MAPS[step["type"]](), None)

    def sentencepiece_rules(self) -> tuple[dict, Charsmap] | None:
        """(settings, charsmap) where all it does is SentencePiece's normalization, or what of it makes spaces ▁ and puts one in
        front, as ``Prepend`` and ``Replace`` of Hugging Face do."""
        match self._settings:
            case [{"type": "sentencepiece"} as step]:
                return step, _charsmap(step)
            case [{"type": "prepend", "text": "▁"}, {"type": "replace", "literal": " ", "content": "▁"}]:
                return _spaces_marked(True), named_charsmap("identity")
            case [{"type": "replace", "literal": " ", "content": "▁"}]:
                return _spaces_marked(False), named_charsmap("identity")
        return None

    @cached_property
    def sentencepiece_tables(self) -> tuple[np.ndarray, ...]:
        """(units, targets, symbols, plain, pages, begins) of such a one, as ``charsmap_kernels`` takes them."""
        step = self._settings[0]
        return _sentencepiece_tables(_charsmap(step), step["user_defined_symbols"])

    def __repr__(self) -> str:
        def describe(step: dict) -> str:
            shown = [
                f"{key}={value!r}" for key, value in step.items() if key not in ("type", "table", "engine", "tables")
            ]
            return f"{step['type']}({', '.join(shown)})" if shown else step["type"]

        return f"Normalizer({', '.join(map(describe, self._settings))})"

    def normalize(self, documents: Documents) -> Documents:
        """Normalize every document; the counts stay those of the input. Raises DocumentError for the first one on which
        a regular expression runs too long."""
        for step in self._steps:
            documents = step(documents)
        return documents

    def normalize_text(self, text: str) -> str:
        return self.normalize(Documents.from_strings([text])).text(0)


def _with(documents: Documents, arrays: tuple[np.ndarray, np.ndarray]) -> Documents:
    data, offsets = arrays
    data.flags.writeable = offsets.flags.writeable = False
    return replace(documents, data=data, offsets=offsets)


def _spaces_marked(prefix: bool) -> dict:
    return {
        "type": "sentencepiece", "rule": "identity", "add_dummy_prefix": prefix, "remove_extra_whitespaces": False,
        "escape_whitespaces": True, "treat_whitespace_as_suffix": False, "user_defined_symbols": (),
    }  # fmt: skip


def _charsmap(step: dict) -> Charsmap:
    return step["table"] if "table" in step else named_charsmap(step["rule"])


def _character_map(table: tables.CharacterMap) -> Step:
    def run(documents: Documents) -> Documents:
        data, offsets = documents.data, documents.offsets
        if not k.map_changes(data, offsets[0], offsets[-1], table.ascii_map, table.pages, table.values):
            return documents
        arrays = k.map_characters(
            data, offsets, table.ascii_map, table.pages, table.values, table.target_offsets, table.targets
        )
        return _with(documents, arrays)

    return run


def _form(name: str) -> Step:
    t = tables.form(name)

    def run(documents: Documents) -> Documents:
        data, offsets = documents.data, documents.offsets
        if k.first_unstable(data, offsets[0], offsets[-1], t.pages, t.rows, t.stable) == offsets[-1]:
            return documents
        arrays = k.decompose_documents(
            data, offsets, t.pages, t.rows, t.stable, t.row_offsets, t.row_codes, t.row_classes, t.compose, t.pairs,
            t.composites,
        )  # fmt: skip
        return _with(documents, arrays)

    return run


_CHARACTER_MAPS: dict[str, Callable[[], tables.CharacterMap]] = {
    "lowercase": tables.lowercase,
    "strip_accents": tables.strip_accents,
    "nmt": tables.nmt,
}


def _bert_maps(step: dict) -> tuple[tables.CharacterMap, tables.CharacterMap | None]:
    settings = step["clean_text"], step["handle_chinese_chars"], step["lowercase"]
    if not step["strip_accents"]:
        return tables.bert_before(*settings), None
    return tables.bert_at_once(*settings), tables.bert_keeps_marks()


def _bert(step: dict) -> Step:
    clean, chinese, lower = step["clean_text"], step["handle_chinese_chars"], step["lowercase"]
    mapping, kept = _bert_maps(step)
    at_once = _character_map(mapping)
    if kept is None:
        return at_once
    one_by_one = [
        _character_map(tables.bert_before(clean, chinese, False)),
        _form("nfd"),
        _character_map(tables.bert_after(lower)),
    ]

    def run(documents: Documents) -> Documents:
        start, stop = documents.offsets[0], documents.offsets[-1]
        if not k.map_changes(documents.data, start, stop, kept.ascii_map, kept.pages, kept.values):
            return at_once(documents)
        for one in one_by_one:
            documents = one(documents)
        return documents

    return run


def _strip(step: dict) -> Step:
    return lambda d: _with(d, edit.strip_documents(d.data, d.offsets, step["left"], step["right"]))


def _collapse_spaces(step: dict) -> Step:
    return lambda d: _with(d, edit.collapse_documents(d.data, d.offsets))


def _prepend(step: dict) -> Step:
    text = np.frombuffer(step["text"].encode(), np.uint8)
    return lambda d: _with(d, edit.prepend_documents(d.data, d.offsets, text))


def _replace(step: dict) -> Step:
    if "literal" in step:
        pattern, content = (np.frombuffer(step[key].encode(), np.uint8) for key in ("literal", "content"))
        return lambda d: _with(d, edit.replace_documents(d.data, d.offsets, pattern, content))
    expression = compiled(step["pattern"], "normalizer replace")
    try:
        return _replace_by_automaton(compile_pattern(step["pattern"]), step["content"])
    except UnsupportedPattern:
        pass  # one that an automaton cannot express: document by document

    def run(documents: Documents) -> Documents:
        pieces = []
        for d in range(len(documents)):
            raw = documents.data[documents.offsets[d] : documents.offsets[d + 1]].tobytes()
            pieces.append(_replace_by_regex(expression, step["content"], raw, d))
        offsets = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
        return _with(documents, (np.frombuffer(b"".join(pieces), np.uint8), offsets))

    return run


def _replace_by_automaton(dfa: DFA, content: str) -> Step:
    """All matches of a pattern that none of is empty, in batches."""
    splitter, text = Splitter(dfa), np.frombuffer(content.encode(), np.uint8)
    ascii_step = np.ascontiguousarray(dfa.transitions[:, dfa.class_of[:128]])

    def run(documents: Documents) -> Documents:
        try:
            ends, document_ends = splitter.split(documents)
        except DocumentError as error:
            raise DocumentError(error.index, error.problem.replace("pre-tokenizer", "normalizer's")) from None
        start, matched = int(documents.offsets[0]), np.empty(len(ends), bool)
        mark_matches(documents.data, start, ends, document_ends, dfa.class_of, ascii_step, dfa.transitions, matched)
        if not matched.any():
            return documents
        return _with(documents, edit.replace_words(documents.data, start, ends, document_ends, matched, text))

    return run


def _replace_by_regex(expression: regex.Pattern, content: str, raw: bytes, d: int) -> bytes:
    """One document. As in Hugging Face's Replace, ``content`` is put in as it is, an empty match right after another
    match does not count, and an empty document stays empty."""
    if not raw:
        return raw
    text = raw.decode()
    parts: list[str] = []
    last = 0
    for match in matches(expression, text, len(raw), d, "normalizer's"):
        start, end = match.span()
        if parts and start == end == last:
            continue
        parts += (text[last:start], content)
        last = end
    return "".join((*parts, text[last:])).encode() if parts else raw


def _charsmap_step(step: dict) -> Step:
    if step["reference"] == "sentencepiece":
        return _sentencepiece_step(_charsmap(step), (), False, False, False, False)
    charsmap = _charsmap(step)
    plain = charsmap.plain(alone=True)
    plain[0x0D] = 0xFF  # a grapheme with what may follow
    plain = tables.frozen(plain)
    pages, begins = tables.two_stages(charsmap.begins.astype(np.uint8))
    class_pages, classes = grapheme_classes()

    def run(documents: Documents) -> Documents:
        arrays = charsmap_kernels.huggingface_documents(
            documents.data, documents.offsets, charsmap.units, charsmap.targets, plain, pages, begins, class_pages,
            classes,
        )  # fmt: skip
        return _with(documents, arrays)

    return run


def _sentencepiece(step: dict) -> Step:
    prefix, suffix = step["add_dummy_prefix"], step["treat_whitespace_as_suffix"]
    return _sentencepiece_step(
        _charsmap(step),
        step["user_defined_symbols"],
        prefix and not suffix,
        prefix and suffix,
        step["remove_extra_whitespaces"],
        step["escape_whitespaces"],
    )


def _sentencepiece_step(
    charsmap: Charsmap, texts: tuple[str, ...], prefix: bool, suffix: bool, squeeze: bool, escape: bool
) -> Step:
    arrays = _sentencepiece_tables(charsmap, texts)

    def run(documents: Documents) -> Documents:
        return _with(
            documents,
            charsmap_kernels.sentencepiece_documents(
                documents.data, documents.offsets, *arrays, prefix, suffix, squeeze, escape
            ),
        )

    return run


def _sentencepiece_tables(charsmap: Charsmap, texts: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """(units, targets, symbols, plain, pages, begins) as ``charsmap_kernels`` takes them."""
    symbols = double_array(sorted({(text.encode(), 0) for text in texts}))
    symbols.flags.writeable = False
    plain = charsmap.plain(alone=False)
    begins = charsmap.begins.copy()
    for text in texts:
        plain[text.encode()[0]] = 0xFF
        begins[ord(text[0])] = True
    return charsmap.units, charsmap.targets, symbols, tables.frozen(plain), *tables.two_stages(begins.astype(np.uint8))


_STEPS: dict[str, Callable[[dict], Step]] = {
    **{name: lambda step: _form(step["type"]) for name in ("nfc", "nfd", "nfkc", "nfkd")},
    **{name: lambda step: _character_map(_CHARACTER_MAPS[step["type"]]()) for name in _CHARACTER_MAPS},
    "bert": _bert,
    "strip": _strip,
    "collapse_spaces": _collapse_spaces,
    "prepend": _prepend,
    "replace": _replace,
    "charsmap": _charsmap_step,
    "sentencepiece": _sentencepiece,
}
