"""The tables of a report, as the template draws them and the page's script sorts them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shardpiece.evaluation import schema
from shardpiece.evaluation.report import values
from shardpiece.evaluation.report.values import Kind, Metric


@dataclass(frozen=True)
class Column:
    """``key``: the definition it has, if any; ``better``: "higher", "lower" or ""."""

    title: str
    kind: Kind = "text"
    key: str = ""
    better: str = ""

    @property
    def is_number(self) -> bool:
        return self.kind != "text"


@dataclass(frozen=True)
class Cell:
    """``sort``: what it is sorted by, a number or a text, None where there is no value. ``best``: no other in its row (of a
    comparison) is better; ``doubtful``: it is that good because of unknown tokens."""

    text: str
    sort: float | str | None
    best: bool = False
    doubtful: bool = False


@dataclass(frozen=True)
class Table:
    """``heads``: how many cells of each row are its heading."""

    id: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    heads: int = 1
    note: str = ""
    filter: str = ""
    metric: Metric | None = field(default=None)


# Of each tokenizer; metrics.json has more.
_GLITCHES = 300


_DOUBTFUL = f"† {values.whole_percent(values.MANY_UNKNOWN)} or more of the tokens are unknown ones: text was lost, and the figure looks better than it is."


def cell(value: float | int | str | None, kind: Kind = "text", best: bool = False) -> Cell:
    return Cell(values.shown(value, kind), value, best)


def _column(report: schema.Report, metric: Metric) -> Column:
    definition = report.definitions.get(metric.key)
    better = definition.better if definition and definition.better != "neither" else ""
    return Column(metric.title, metric.kind, metric.key if definition else "", better)


def group_title(group: str) -> str:
    return group or "(no group)"


def _known(metrics: Iterable[Metric], of: Iterable[object]) -> list[Metric]:
    """Those that have a value somewhere."""
    of = list(of)
    return [metric for metric in metrics if any(getattr(one, metric.key) is not None for one in of)]


def overview(report: schema.Report) -> Table:
    tokenizers = report.tokenizers
    metrics = _known(values.GROUP_METRICS, [t.overall for t in tokenizers])
    utilization = Metric("utilization", "Utilization", "share")
    gini = Metric("gini", "Gini of premiums", "small")
    with_gini = any(t.gini is not None for t in tokenizers)
    columns = [
        Column("Tokenizer"),
        Column("Algorithm"),
        Column("Vocabulary", "count"),
        _column(report, Metric("tokens", "Tokens", "count")),
        *(_column(report, metric) for metric in metrics),
        _column(report, utilization),
        *([_column(report, gini)] if with_gini else []),
    ]
    rows = [
        [
            cell(t.name),
            cell(t.algorithm),
            cell(t.vocab_size, "count"),
            cell(t.overall.tokens, "count"),
            *(cell(getattr(t.overall, metric.key), metric.kind) for metric in metrics),
            cell(t.utilization.fraction, "share"),
            *([cell(t.gini, "small")] if with_gini else []),
        ]
        for t in tokenizers
    ]
    return Table("overview", "All text, by tokenizer", columns, rows)


def comparisons(report: schema.Report) -> list[Table]:
    """For each metric, groups down and tokenizers across."""
    tables = []
    everything = [m for t in report.tokenizers for m in t.groups.values()]
    for metric in _known(values.GROUP_METRICS, everything):
        better = _column(report, metric).better
        rows = []
        for group in report.corpus.groups:
            found = [getattr(t.groups[group], metric.key) if group in t.groups else None for t in report.tokenizers]
            doubtful = [
                metric.key in values.OF_TOKENS and values.loses_text(t.groups.get(group)) for t in report.tokenizers
            ]
            rows.append([cell(group_title(group)), *_compared(found, doubtful, metric.kind, better)])
        columns = [Column("Group"), *(Column(t.name, metric.kind) for t in report.tokenizers)]
        direction = f", {better} is better" if better else ""
        tables.append(
            Table(
                f"compare-{metric.key}",
                f"{metric.title} by group{direction}",
                columns,
                rows,
                metric=metric,
                filter="group",
                note=_DOUBTFUL if any(one.doubtful for row in rows for one in row) else "",
            )
        )
    return tables


def _compared(found: Sequence[float | None], doubtful: Sequence[bool], kind: Kind, better: str) -> list[Cell]:
    """Cells of a row, the best of those marked that are not doubtful."""
    best = _best([None if doubt else v for v, doubt in zip(found, doubtful, strict=True)], better)
    return [
        Cell(values.shown(v, kind), v, v is not None and v == best and not doubt, v is not None and doubt)
        for v, doubt in zip(found, doubtful, strict=True)
    ]


def _best(found: Sequence[float | None], better: str) -> float | None:
    """The best value where there is a choice, None where all are alike."""
    known = [v for v in found if v is not None]
    if not better or len(set(known)) < 2:
        return None
    return max(known) if better == "higher" else min(known)


def groups(report: schema.Report) -> Table:
    """Every group with every tokenizer, every metric."""
    everything = [m for t in report.tokenizers for m in t.groups.values()]
    metrics = _known(values.GROUP_METRICS, everything)
    columns = [
        Column("Group"),
        Column("Tokenizer"),
        _column(report, Metric("tokens", "Tokens", "count")),
        *(_column(report, metric) for metric in metrics),
        _column(report, Metric("distinct_tokens", "Different tokens", "count")),
    ]
    rows = [
        [
            cell(group_title(group)),
            cell(t.name),
            cell(m.tokens, "count"),
            *(cell(getattr(m, metric.key), metric.kind) for metric in metrics),
            cell(m.distinct_tokens, "count"),
        ]
        for group in report.corpus.groups
        for t in report.tokenizers
        if (m := t.groups.get(group)) is not None
    ]
    return Table("groups", "Every metric, by group and tokenizer", columns, rows, heads=2, filter="group or tokenizer")


def sizes(report: schema.Report) -> Table:
    rows = [
        [cell(group_title(group)), *(cell(getattr(size, m.key), m.kind) for m in values.SIZES)]
        for group, size in report.corpus.groups.items()
    ]
    columns = [Column("Group"), *(Column(m.title, m.kind) for m in values.SIZES)]
    return Table("sizes", "The text, by group", columns, rows, filter="group")


def premiums(report: schema.Report) -> Table | None:
    parallel = report.parallel
    if parallel is None or parallel.pivot is None:
        return None
    rows = []
    for group, pairs in parallel.groups.items():
        found = [t.premiums.get(group) for t in report.tokenizers]
        doubtful = [values.loses_text(t.groups.get(group)) for t in report.tokenizers]
        rows.append(
            [
                cell(group_title(group)),
                cell(pairs.pairs, "count"),
                *_compared(found, doubtful, "ratio", "lower"),
                cell(pairs.byte_premium, "ratio"),
            ]
        )
    columns = [
        Column("Group"),
        Column("Pairs", "count"),
        *(Column(t.name, "ratio") for t in report.tokenizers),
        Column("Bytes alone", "ratio"),
    ]
    caption = f"Premium: tokens for the same text against {group_title(parallel.pivot)}, lower is better"
    note = "“Bytes alone” is what a tokenizer with one token per byte would have." + (
        " Of the pairs a sample was counted." if parallel.sampled else ""
    )
    if any(one.doubtful for row in rows for one in row):
        note = f"{note} {_DOUBTFUL}"
    return Table("premiums", caption, columns, rows, filter="group", note=note)


def allocation(report: schema.Report, key: str, title: str) -> Table:
    """Tokens of each vocabulary by ``key`` of Allocation."""
    counts = [getattr(t.vocabulary, key) for t in report.tokenizers]
    total: dict[object, int] = {}
    for of in counts:
        for name, count in of.items():
            total[name] = total.get(name, 0) + count
    names = sorted(total) if key == "by_length" else sorted(total, key=lambda name: (-total[name], str(name)))
    rows = [
        [
            Cell(f"{name}" if key != "by_group" else group_title(str(name)), name if key == "by_length" else str(name)),
            *(cell(of.get(name, 0), "count") for of in counts),
        ]
        for name in names
    ]
    columns = [
        Column(title, "count" if key == "by_length" else "text"),
        *(Column(t.name, "count") for t in report.tokenizers),
    ]
    return Table(f"vocabulary-{key}", f"Tokens of the vocabulary by {title.lower()}", columns, rows)


REASONS = {
    "unreachable": "unreachable",
    "partial_utf8": "partial character",
    "unused": "not in the text",
    "rare": "rarer than expected",
}


def glitch_counts(report: schema.Report) -> Table:
    rows = [
        [cell(t.name), *(cell(t.glitch.counts.get(reason), "count") for reason in REASONS)] for t in report.tokenizers
    ]
    columns = [
        Column("Tokenizer"),
        *(_column(report, Metric(reason, title.capitalize(), "count")) for reason, title in REASONS.items()),
    ]
    return Table("glitch-counts", "Tokens that a model may hardly learn, by reason", columns, rows)


def glitches(report: schema.Report) -> list[Table]:
    """The candidates, a table for each tokenizer."""
    tables = []
    for i, t in enumerate(report.tokenizers):
        found = t.glitch.candidates[:_GLITCHES]
        trained = any(g.training_count is not None for g in found)
        expected = any(g.expected is not None for g in found)
        columns = [
            Column("Token"),
            Column("Id", "count"),
            Column("Bytes"),
            Column("Reasons"),
            Column("Count here", "count"),
            *([Column("Count in training", "count")] if trained else []),
            *([Column("Expected here", "ratio")] if expected else []),
        ]
        rows = [
            [
                cell(g.text),
                Cell(str(g.id), g.id),
                cell(spaced(g.bytes)),
                cell(", ".join(REASONS[reason] for reason in g.reasons)),
                cell(g.count, "count"),
                *([cell(g.training_count, "count")] if trained else []),
                *([cell(g.expected, "ratio")] if expected else []),
            ]
            for g in found
        ]
        if rows:
            tables.append(Table(f"glitch-{i}", t.name, columns, rows, filter="token or reason"))
    return tables


def spaced(hexadecimal: str, most: int = 24) -> str:
    """Bytes apart, the first ``most`` of them."""
    pairs = [hexadecimal[i : i + 2] for i in range(0, len(hexadecimal), 2)]
    return " ".join(pairs[:most]) + (" …" if len(pairs) > most else "")


def numbers(report: schema.Report) -> Table | None:
    found = [t for t in report.tokenizers if t.numbers]
    if not found:
        return None
    lengths = sorted({length for t in found if t.numbers for length in t.numbers.lengths})
    columns = [
        Column("Tokenizer"),
        Column("Grouping"),
        _column(report, Metric("numbers_alike", "Cut alike", "share")),
        *(Column(f"{length} digits") for length in lengths),
    ]
    rows = []
    for t in found:
        assert t.numbers is not None
        row = [cell(t.name), cell(t.numbers.grouping or "no rule"), cell(t.numbers.alike, "share")]
        for length in lengths:
            of = t.numbers.lengths.get(length)
            if of is None or not of.patterns or not of.numbers:
                row.append(cell(None))
                continue
            pattern, count = max(of.patterns.items(), key=lambda item: item[1])
            share = count / of.numbers
            row.append(Cell(pattern if share == 1 else f"{pattern} ({values.percent(share)})", of.tokens))
        rows.append(row)
    note = "The most frequent way to cut a number of so many digits, digits per token; with its share where there are others."
    return Table("numbers", "How numbers of each length are cut", columns, rows, note=note)


def white_space(report: schema.Report) -> Table | None:
    found = [t for t in report.tokenizers if t.white_space]
    if not found:
        return None
    kinds = list(dict.fromkeys(kind for t in found if t.white_space for kind in t.white_space.indentation))
    columns = [
        Column("Tokenizer"),
        Column("Longest run of spaces in one token", "count", "", "higher"),
        *(Column(f"Indented by {kind}, per level") for kind in kinds),
        Column("1, 2, … spaces before a word"),
    ]
    rows = []
    for t in found:
        assert t.white_space is not None
        of = t.white_space
        rows.append(
            [
                cell(t.name),
                cell(of.longest_spaces_in_one_token, "count"),
                *(_series(of.indentation.get(kind, [])) for kind in kinds),
                _series(of.spaces),
            ]
        )
    return Table("white-space", "White space: tokens of an indentation or of a run of spaces", columns, rows)


def _series(counts: Sequence[int]) -> Cell:
    return Cell(" ".join(map(str, counts)) or values.NOT_COMPUTED, sum(counts) if counts else None)


def costs(report: schema.Report) -> list[Table]:
    tables = []
    for i, (name, shape) in enumerate(report.shapes.items()):
        have = [(t, t.costs[name]) for t in report.tokenizers if name in t.costs]
        metrics = _known(values.COSTS, [cost for _, cost in have])
        rows = [[cell(t.name), *(cell(getattr(cost, m.key), m.kind) for m in metrics)] for t, cost in have]
        columns = [Column("Tokenizer"), *(_column(report, metric) for metric in metrics)]
        about = (
            f"{values.counted(shape.layers, 'layer')}, d = {shape.d_model:,}, keys and values of {shape.key_value_size:,} "
            f"each, {values.counted(shape.bytes_per_value, 'byte')} per value, output "
            f"{'tied to the embedding' if shape.tied else 'of its own'}, {shape.price_per_million_tokens:g} per million tokens"
        )
        if rows:
            tables.append(Table(f"cost-{i}", f"Cost for {name}", columns, rows, note=about))
    return tables
