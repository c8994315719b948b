"""Tallies and tokenizers in, the report out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from shardpiece.errors import ShardpieceError, one_line
from shardpiece.evaluation import cuts, numbers
from shardpiece.evaluation.cost import cost
from shardpiece.evaluation.definitions import DEFINITIONS, WORD_RULE
from shardpiece.evaluation.glitch import glitches
from shardpiece.evaluation.metrics import frequency_curve, gini, group_metrics, ratio, renyi, utilization
from shardpiece.evaluation.parallel import choose_pivot, premiums
from shardpiece.evaluation.schema import (
    Corpus,
    GroupMetrics,
    Parallel,
    ParallelGroup,
    Probe,
    Report,
    Sample,
    SampleTokens,
    Shape,
    TextSize,
    TokenizerReport,
)
from shardpiece.evaluation.tally import TEXT_SUMS, TOKEN_SUMS, TextTally, TokenTally
from shardpiece.evaluation.vocabulary import Said, allocation
from shardpiece.evaluation.words import TOP, tokens_of_words
from shardpiece.tokenizer.tokenizer import Tokenizer

MOST_UNKNOWN = 0.02
"""Of a group's tokens; text of which more is lost is shorter than it should be."""


@dataclass(frozen=True)
class Candidate:
    """A tokenizer under evaluation. ``training``: int64 [vocab_size], the counts of its training table, where at hand;
    ``exact``: of a word table, whether its words are those of the tokenizer's own text engine."""

    name: str
    source: str
    tokenizer: Tokenizer
    training: np.ndarray | None = None
    exact: bool = True


@dataclass(frozen=True)
class Wanted:
    """What a report is to have besides the metrics."""

    shapes: dict[str, Shape]
    probes: Sequence[str] = ()
    pivot: str | None = None
    samples: int = 12
    glitch_tokens: int = 2_000
    settings: dict = field(default_factory=dict)


def report(
    key: str,
    source: Literal["text", "words"],
    text: TextTally,
    tallies: Sequence[TokenTally],
    candidates: Sequence[Candidate],
    wanted: Wanted,
) -> Report:
    """``tallies``: of the candidates, in their order."""
    notes: list[str] = []
    sizes = _sizes(text)
    overall = _total(sizes)
    words = text.common_words(TOP)
    pivot, parallel = None, None
    if text.parallel.settled().rows:
        pivot = choose_pivot(text.parallel, wanted.pivot)
        parallel = _parallel(text, pivot)
    _note_corpus(notes, source, sizes, overall, parallel, wanted)
    reports: list[TokenizerReport] = []
    shown: dict[str, SampleTokens] = {}
    samples = _samples(text, sizes, wanted.samples)
    for candidate, tally in zip(candidates, tallies, strict=True):
        one = _Builder(candidate, tally, sizes, words, pivot, wanted, source)
        baseline = reports[0].overall if reports else None
        reports.append(one.report(overall, baseline, samples))
        shown.update({(candidate.name, n): tokens for n, tokens in enumerate(one.samples)})
    return Report(
        key=key,
        settings=wanted.settings,
        definitions=DEFINITIONS,
        corpus=Corpus(
            source=source, word_rule=WORD_RULE, groups={g: TextSize(**s) for g, s in sizes.items()}, **overall
        ),
        shapes=wanted.shapes,
        tokenizers=reports,
        parallel=parallel,
        samples=[
            Sample(
                group=group,
                id=sample.id,
                text=sample.text,
                cut=sample.cut,
                tokens={one.name: shown[one.name, n] for one in candidates},
            )
            for n, (group, sample) in enumerate(samples)
        ],
        notes=notes,
    )


def _sizes(text: TextTally) -> dict[str, dict[str, int]]:
    return {group: dict(zip(TEXT_SUMS, text.sums[group].tolist(), strict=True)) for group in sorted(text.sums)}


def _total(sizes: dict[str, dict[str, int]]) -> dict[str, int]:
    return {name: sum(one[name] for one in sizes.values()) for name in TEXT_SUMS}


def _parallel(text: TextTally, pivot: str | None) -> Parallel:
    rows = text.parallel.rows
    found = premiums(text.parallel, pivot) if pivot is not None else dict.fromkeys(sorted(rows), (0, None))
    keys = np.unique(np.concatenate([keys for keys, _, _ in rows.values()])) if rows else np.zeros(0)
    return Parallel(
        pivot=pivot,
        texts=len(keys),
        sampled=text.parallel.below < 1 << 64,
        groups={group: ParallelGroup(pairs=pairs, byte_premium=premium) for group, (pairs, premium) in found.items()},
    )


def _samples(text: TextTally, sizes: dict, most: int):
    """(group, sample) of the groups with most text."""
    groups = sorted(text.samples, key=lambda group: (-sizes[group]["bytes"], group))
    return [(group, text.samples[group]) for group in groups[:most]]


def _note_corpus(notes, source, sizes, overall, parallel: Parallel | None, wanted: Wanted) -> None:
    if source == "words":
        notes.append(
            "Evaluated on a word table, not on text: tokens per document, round trips, premiums, cache per document and samples "
            "are open; bytes and characters are those of the words that the table has"
        )
    if not overall["bytes"]:
        notes.append("The corpus has no text: all figures of compression are open")
    empty = [group for group, one in sizes.items() if not one["bytes"]]
    if empty and overall["bytes"]:
        notes.append(f"Groups without text, all of whose figures are open: {_named(empty)}")
    wordless = [group for group, one in sizes.items() if one["bytes"] and not one["words"]]
    if wordless:
        notes.append(f"Groups without words, whose figures per word are open: {_named(wordless)}")
    if source == "text" and parallel is None:
        notes.append("No premiums: no ids of parallel texts were given, or none is of the form that was given")
    elif parallel is not None and parallel.pivot is None:
        why = (
            f"the pivot {wanted.pivot!r} has no parallel texts" if wanted.pivot else "only one group has parallel texts"
        )
        notes.append(f"No premiums: {why}")
    elif parallel is not None:
        alone = [group for group in sizes if not parallel.groups.get(group) or not parallel.groups[group].pairs]
        if alone:
            notes.append(
                f"Groups without texts parallel to those of {parallel.pivot!r}, whose premium is open: {_named(alone)}"
            )
        if parallel.sampled:
            notes.append(f"Premiums are of {parallel.texts:,} parallel texts, those whose ids have the smallest hashes")


def _named(groups: list[str], most: int = 12) -> str:
    more = f" and {len(groups) - most} more" if len(groups) > most else ""
    return ", ".join(repr(group) for group in groups[:most]) + more


class _Builder:
    """The report of one tokenizer."""

    def __init__(self, candidate, tally: TokenTally, sizes, words: pa.Table, pivot, wanted: Wanted, source: str):
        self.candidate, self.tally, self.sizes, self.pivot, self.wanted = candidate, tally, sizes, pivot, wanted
        self.tokenizer: Tokenizer = candidate.tokenizer
        self.source = source
        self.said = Said(self.tokenizer)
        self.notes: list[str] = []
        self.samples: list[SampleTokens] = []
        self.common = common_words_in_one_token(self.tokenizer, words)

    def report(self, overall: dict[str, int], baseline: GroupMetrics | None, samples) -> TokenizerReport:
        tokenizer, tally, said, wanted = self.tokenizer, self.tally, self.said, self.wanted
        counts = tally.total()
        whole = self._overall(overall, counts)
        groups = {group: self._group(group) for group in self.sizes}
        found = premiums(tally.parallel, self.pivot) if self.pivot is not None else {}
        values = {group: found[group][1] if group in found else None for group in self.sizes}
        known = [value for value in values.values() if value is not None]
        probes = [self._probe(text) for text in wanted.probes]
        self.samples = [cuts.sample_tokens(said, sample.text) for _, sample in samples]
        self._note_state(whole, groups)
        named = sorted(
            {
                i
                for one in (*self.samples, *(p.alone for p in probes), *(p.after_space for p in probes))
                for i in one.ids
            }
        )
        return TokenizerReport(
            name=self.candidate.name,
            source=self.candidate.source,
            fingerprint=tokenizer.fingerprint,
            vocab_size=tokenizer.vocab_size,
            algorithm=tokenizer.model.kind,
            engine=tokenizer.engine.name,
            overall=whole,
            groups=groups,
            vocabulary=allocation(said, tally),
            utilization=utilization(counts, said.ordinary),
            renyi=renyi(counts, tokenizer.vocab_size),
            frequency_curve=frequency_curve(counts),
            premiums=values,
            gini=gini(known),
            numbers=self._tried("numbers", numbers.numbers),
            white_space=self._tried("white space", numbers.white_space),
            glitch=glitches(said, counts, self.candidate.training, wanted.glitch_tokens),
            probes=probes,
            costs={
                name: cost(tokenizer.vocab_size, shape, whole, baseline or whole)
                for name, shape in wanted.shapes.items()
            },
            tokens={i: said.info(i, counts[i]) for i in named},
            notes=self.notes,
        )

    def _sums(self, group: str) -> dict[str, int]:
        sums = self.tally.sums.get(group, np.zeros(len(TOKEN_SUMS), np.int64))
        return dict(zip(TOKEN_SUMS, sums.tolist(), strict=True))

    def _group(self, group: str) -> GroupMetrics:
        return self._metrics(self.sizes[group], self._sums(group), *self.tally.counts(group), self.common.get(group))

    def _overall(self, overall: dict[str, int], counts: np.ndarray) -> GroupMetrics:
        every = [self._sums(group) for group in self.sizes]
        sums = {name: sum(one[name] for one in every) for name in TOKEN_SUMS}
        ids = np.flatnonzero(counts)
        # Of all groups alike, as each has its own most frequent words.
        common = [value for value in self.common.values() if value is not None]
        return self._metrics(overall, sums, ids, counts[ids], ratio(sum(common), len(common)))

    def _metrics(self, sizes, sums, ids, counts, common: float | None) -> GroupMetrics:
        return group_metrics(
            sizes, sums, ids, counts, vocab_size=self.tokenizer.vocab_size, unk_id=self.tokenizer.model.unk_id,
            white_space=self.said.white_space, single_token_common_words=common,
        )  # fmt: skip

    def _probe(self, text: str) -> Probe:
        return cuts.probe(self.said, text)

    def _tried(self, what: str, make):
        try:
            return make(self.said)
        except ShardpieceError as error:
            self.notes.append(f"No figures of {what}: {one_line(error)}")
            return None

    def _note_state(self, whole: GroupMetrics, groups: dict[str, GroupMetrics]) -> None:
        if not self.candidate.exact:
            self.notes.append(
                "Has another text engine than the word table: its words were encoded one by one, and what this tokenizer would "
                "join across them, or cut elsewhere, is not seen"
            )
        failed = sum(self._sums(group)["failed"] for group in self.sizes)
        if failed:
            self.notes.append(f"Cannot decode: of {failed:,} documents the tokens gave no text")
        if self.source == "text" and whole.round_trip_rate == 0:
            self.notes.append(
                "No document comes back from its tokens as it was: this tokenizer cannot decode to the text it was given"
            )
        if self.source == "text" and whole.documents:
            untried = [g for g, one in self.sizes.items() if one["documents"] and not self._sums(g)["tried"]]
            if untried:
                self.notes.append(f"Groups none of whose documents was decoded, as only some are: {_named(untried)}")
        if whole.tokens and whole.unk_rate is not None and whole.unk_rate > 0.5:
            self.notes.append("More than half of the tokens are the unknown token: the vocabulary is of other scripts")
        lost = [group for group in self.sizes if (groups[group].unk_rate or 0) > MOST_UNKNOWN]
        if lost:
            self.notes.append(
                f"Groups of whose tokens more than {MOST_UNKNOWN:.0%} are unknown, which makes lengths, premiums and fertility look "
                f"better than they are: {_named(lost)}"
            )
        if whole.bytes and not whole.tokens:
            self.notes.append("The text became no tokens at all: figures per token are open")


def common_words_in_one_token(tokenizer: Tokenizer, words: pa.Table) -> dict[str, float | None]:
    """By group, the share of its rows of ``words`` (word, group, count) that become one token, see ``tokens_of_words``."""
    if not len(words):
        return {}
    single = tokens_of_words(tokenizer, words["word"].combine_chunks()) == 1
    names = np.array(words["group"].to_pylist(), dtype=object)
    return {group: float(single[names == group].mean()) for group in sorted(set(names.tolist()))}
