"""What a report comes to, in words: which tokenizer is better for what, and by how much.

Every sentence is computed from the figures, and says no more than they do: differences below MATTERS are "about as many", and
what could not be computed is not spoken of. Tokens are compared on the same text, so their ratio is exact for it; that other
text behaves alike is for the reader to judge.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardpiece.evaluation import schema
from shardpiece.evaluation.report import tables
from shardpiece.evaluation.report.values import MANY_UNKNOWN, counted, listed, loses_text, percent, times, whole_percent

MATTERS = 0.02
# From so much text on, tokens of a group are worth comparing.
_ENOUGH_BYTES = 1000
_NAMED_GROUPS = 3
_LONGEST_TITLE = 30


@dataclass(frozen=True)
class Finding:
    """``topic``: what it is about; ``sentences``: in order; ``section``: the id of the section that has the figures."""

    topic: str
    sentences: list[str]
    section: str


def summary(report: schema.Report) -> list[Finding]:
    found = [
        Finding("Compression", _compression(report), "overview-section"),
        Finding("By group", _groups(report), "groups-section"),
        Finding("Languages side by side", _premiums(report), "premiums-section"),
        Finding("Fidelity", _fidelity(report), "overview-section"),
        Finding("Numbers", _numbers(report), "numbers-section"),
        Finding("Indentation", _indentation(report), "white-space-section"),
        Finding("Vocabulary", _vocabulary(report), "vocabulary-section"),
        Finding("Cost", _costs(report), "cost-section"),
    ]
    return [finding for finding in found if finding.sentences]


def group_title(group: str) -> str:
    """As sentences have it, on one line of bounded length."""
    title = " ".join(tables.group_title(group).split())
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"


def more(ratio: float) -> str:
    """How a number that is ``ratio`` times another compares: "12 % more", "3.1 times as many"."""
    if ratio >= 2:
        return f"{times(ratio).removesuffix('×')} times as many"
    if abs(ratio - 1) < MATTERS:
        return "about as many"
    return f"{whole_percent(abs(ratio - 1))} {'more' if ratio > 1 else 'fewer'}"


def _lossy(t: schema.TokenizerReport) -> bool:
    rates = t.overall.round_trip_rate, t.overall.unk_rate
    return (rates[0] is not None and rates[0] < 1) or bool(rates[1])


def _compression(report: schema.Report) -> list[str]:
    known = [t for t in report.tokenizers if t.overall.tokens]
    lost = [t.name for t in known if loses_text(t.overall)]
    if len(lost) < len(known):
        known = [t for t in known if t.name not in lost]
    if not known:
        return ["There is no text, so there is nothing to compare."]
    if len(known) == 1:
        [t] = known
        sentences = [f"{t.name} makes {counted(t.overall.tokens, 'token')} of the text"]
        if t.overall.bytes_per_token is not None:
            sentences[0] += f", {t.overall.bytes_per_token:.2f} bytes each"
        return [sentences[0] + ".", *_not_compared(lost, known)]
    ranked = sorted(known, key=lambda t: t.overall.tokens)
    first = ranked[0]
    near = [t for t in ranked[1:] if t.overall.tokens / first.overall.tokens < 1 + MATTERS]
    far = [t for t in ranked[1:] if t not in near]
    per_token = (
        f" ({first.overall.bytes_per_token:.2f} bytes each)" if first.overall.bytes_per_token is not None else ""
    )
    if not far:
        return [
            f"{listed([t.name for t in ranked], 8)} need about as many tokens for all the text: less than "
            f"{whole_percent(MATTERS)} apart.",
            *_not_compared(lost, known),
        ]
    needs = f"{first.name} needs the fewest tokens for all the text{per_token}"
    if near:
        needs += f", {listed([t.name for t in near])} about as many"
    behind = listed([f"{t.name} {more(t.overall.tokens / first.overall.tokens)}" for t in far], 8)
    sentences = [f"{needs}; {behind}."]
    smaller = [t for t in ranked[1:] if 0 < t.vocab_size < first.vocab_size / (1 + MATTERS)]
    if smaller:
        sizes = listed([f"{t.name}'s {t.vocab_size:,}" for t in smaller])
        sentences.append(f"Its vocabulary is larger, though: {first.vocab_size:,} tokens against {sizes}.")
    sentences += _not_compared(lost, known)
    lossy = [t.name for t in ranked if _lossy(t)]
    if lossy:
        sentences.append(
            f"Mind that {listed(lossy)} {_verb(lossy, 'does', 'do')} not keep all of the text (see Fidelity)."
        )
    return sentences


def _not_compared(lost: list[str], known: list[schema.TokenizerReport]) -> list[str]:
    if not lost or any(t.name in lost for t in known):
        return []
    return [
        f"{listed(lost)} {_verb(lost, 'is', 'are')} not compared here: {whole_percent(MANY_UNKNOWN)} or more of the tokens are unknown "
        f"ones, each of which may stand for a word that was lost."
    ]


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


def _groups(report: schema.Report) -> list[str]:
    """For each tokenizer the groups in which it needs clearly fewer tokens than every other, and where the distance is
    largest."""
    if len(report.tokenizers) < 2 or len(report.corpus.groups) < 2:
        return []
    won: dict[str, list[tuple[float, str]]] = {t.name: [] for t in report.tokenizers}
    compared = undecided = 0
    for group, size in report.corpus.groups.items():
        tokens = {
            t.name: t.groups[group].tokens
            for t in report.tokenizers
            if group in t.groups and not loses_text(t.groups[group])
        }
        ranked = sorted((count, name) for name, count in tokens.items() if count)
        if size.bytes < _ENOUGH_BYTES or len(ranked) < 2:
            continue
        compared += 1
        (best, name), (second, _) = ranked[:2]
        if second / best >= 1 + MATTERS:
            won[name].append((second / best, group_title(group)))
        else:
            undecided += 1
    if not compared:
        return []
    sentences = []
    for t in report.tokenizers:
        groups = sorted(won[t.name], key=lambda item: (-item[0], item[1]))
        if not groups:
            continue
        most = [f"{group} (the next one needs {more(ratio)})" for ratio, group in groups[:_NAMED_GROUPS]]
        where = (
            f"all {compared} groups" if len(groups) == compared else f"{len(groups)} of {counted(compared, 'group')}"
        )
        lead = "most clearly in " if len(groups) > len(most) else "namely " if len(groups) < compared else ""
        sentences.append(f"{t.name} needs the fewest tokens in {where}, {lead}{listed(most)}.")
    for t in report.tokenizers:
        lost = [group_title(group) for group, metrics in t.groups.items() if loses_text(metrics)]
        if lost:
            sentences.append(
                f"{t.name} is not compared in {listed(lost)}: {whole_percent(MANY_UNKNOWN)} or more of its tokens there are unknown ones."
            )
    if undecided:
        sentences.append(f"In {counted(undecided, 'group')} the best two are less than {whole_percent(MATTERS)} apart.")
    return sentences


def _premiums(report: schema.Report) -> list[str]:
    parallel = report.parallel
    if parallel is None or parallel.pivot is None:
        return []
    sentences = []
    for t in report.tokenizers:
        known = [
            (premium, group_title(group))
            for group, premium in t.premiums.items()
            if premium is not None and group != parallel.pivot and not loses_text(t.groups.get(group))
        ]
        if not known:
            continue
        known.sort(key=lambda item: (-item[0], item[1]))
        highest = listed(
            [f"{times(premium)} in {group}" for premium, group in known[:_NAMED_GROUPS] if premium > 1 + MATTERS]
        )
        what = f"the same text takes up to {highest}" if highest else "no language takes clearly more tokens"
        unknown = any(loses_text(t.groups.get(group)) for group in parallel.groups)
        spread = f"; Gini coefficient {t.gini:.3f}" if t.gini is not None and not unknown else ""
        sentences.append(f"{t.name}: {what}, against {group_title(parallel.pivot)}{spread}.")
    with_gini = sorted(
        (t.gini, t.name)
        for t in report.tokenizers
        if t.gini is not None and not any(loses_text(t.groups.get(group)) for group in parallel.groups)
    )
    if len(with_gini) > 1 and with_gini[1][0] - with_gini[0][0] > 0.01:
        sentences.append(f"{with_gini[0][1]} treats the languages most alike.")
    return sentences


def _fidelity(report: schema.Report) -> list[str]:
    exact, sentences = [], []
    for t in report.tokenizers:
        parts = []
        rate, unknown = t.overall.round_trip_rate, t.overall.unk_rate
        if rate is not None and rate < 1:
            parts.append(
                f"gives back {percent(rate)} of the documents as they were"
                if rate
                else "gives back no document as it was"
            )
        if unknown:
            parts.append(f"{percent(unknown)} of its tokens are unknown ones")
        if parts:
            sentences.append(f"{t.name}: {', '.join(parts)}.")
        elif rate == 1:
            exact.append(t.name)
    if exact:
        sentences.insert(
            0, f"{listed(exact, 8)} {_verb(exact, 'gives', 'give')} every document tried back byte for byte."
        )
    return sentences


def _numbers(report: schema.Report) -> list[str]:
    sentences = []
    for t in report.tokenizers:
        if t.numbers is None:
            continue
        alike = t.numbers.alike
        how = f", the most frequent way being that of {percent(alike)}" if alike is not None and alike < 1 else ""
        sentences.append(f"{t.name}: {t.numbers.grouping or 'no rule'}{how}.")
    return sentences


def _indentation(report: schema.Report) -> list[str]:
    """Tokens of four levels of four spaces."""
    kind, level = "4 spaces", 4
    known = []
    for t in report.tokenizers:
        counts = t.white_space.indentation.get(kind, []) if t.white_space else []
        if len(counts) >= level:
            known.append((counts[level - 1], t.name))
    if len(known) < 2 or min(known)[0] == max(known)[0]:
        return []
    by_count: dict[int, list[str]] = {}
    for count, name in known:
        by_count.setdefault(count, []).append(name)
    parts = [f"{counted(count, 'token')} with {listed(names)}" for count, names in sorted(by_count.items())]
    return [f"Code indented by four levels of four spaces begins with {listed(parts, 8)}."]


def _vocabulary(report: schema.Report) -> list[str]:
    sentences = []
    for t in report.tokenizers:
        parts = []
        if t.utilization.fraction is not None:
            parts.append(
                f"the text has {percent(t.utilization.fraction)} of the {t.utilization.possible:,} tokens it could have"
            )
        unreachable = t.glitch.counts.get("unreachable", 0)
        if unreachable:
            parts.append(f"{counted(unreachable, 'token')} cannot be reached by any text")
        rare = t.glitch.counts.get("rare", 0)
        if rare:
            parts.append(f"{rare:,} are much rarer than in training")
        if parts:
            sentences.append(f"{t.name}: {'; '.join(parts)}.")
    return sentences


def _costs(report: schema.Report) -> list[str]:
    if not report.shapes or len(report.tokenizers) < 2:
        return []
    name = next(iter(report.shapes))
    costs = [(t, t.costs[name]) for t in report.tokenizers if name in t.costs]
    if len(costs) < 2:
        return []
    sentences = []
    (first, base), *others = costs
    parts = [f"{t.name}'s {cost.parameters / 1e6:,.1f} M" for t, cost in others]
    sentences.append(
        f"In {name}, {first.name}'s vocabulary takes {base.parameters / 1e6:,.1f} M parameters, {listed(parts, 8)}."
    )
    work = [
        f"{t.name} {cost.attention_ratio:.2f} times"
        for t, cost in others
        if cost.attention_ratio is not None and abs(cost.attention_ratio - 1) >= MATTERS
    ]
    if work:
        sentences.append(f"Attention over the same text takes {listed(work, 8)} the work that it takes {first.name}.")
    return sentences
