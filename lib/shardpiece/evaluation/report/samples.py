"""Sample documents and the user's own terms, cut by every tokenizer."""

from typing import Any

from shardpiece.evaluation import schema
from shardpiece.evaluation.report.tables import group_title
from shardpiece.evaluation.segments import strip


def samples(report: schema.Report) -> list[dict[str, Any]]:
    """For report.js: {"group", "id", "text", "cut", "bytes", "strips": [{"strip" (see segments.strip), "exact",
    "counts": {id: in the text evaluated}} or null for each tokenizer]}."""
    return [
        {
            "group": group_title(sample.group),
            "id": sample.id,
            "text": sample.text,
            "cut": sample.cut,
            "bytes": len(sample.text.encode("utf-8", "replace")),
            "strips": [_strip(sample, t) for t in report.tokenizers],
        }
        for sample in report.samples
    ]


def _strip(sample: schema.Sample, tokenizer: schema.TokenizerReport) -> dict[str, Any] | None:
    cut = sample.tokens.get(tokenizer.name)
    if cut is None:
        return None
    if cut.spans is not None:
        raw = sample.text.encode("utf-8", "replace")
        made = strip((i for i, _, _ in cut.spans), [raw[start:end] for _, start, end in cut.spans])
    else:
        made = _pieces(cut, tokenizer)
    ids = sorted({piece[0] for piece in made["pieces"]})
    counts = {str(i): tokenizer.tokens[i].count for i in ids if i in tokenizer.tokens}
    return {"strip": made, "exact": cut.spans is not None, "counts": counts}


def _pieces(cut: schema.SampleTokens, tokenizer: schema.TokenizerReport) -> dict[str, Any]:
    """Pieces that are no places in the text, readable already."""
    index: dict[tuple[int, str], int] = {}
    order = [index.setdefault(pair, len(index)) for pair in zip(cut.ids, cut.pieces, strict=True)]
    known = tokenizer.tokens
    return {
        "pieces": [[i, known[i].bytes if i in known else "", [[text, 0]] if text else []] for i, text in index],
        "tokens": order,
        "shared": [],
    }


def probes(report: schema.Report) -> list[dict[str, Any]]:
    """The terms down, what each tokenizer makes of them across: {"text", "cuts": [{"alone", "after_space", "round_trip"}]}."""
    texts = list(dict.fromkeys(probe.text for t in report.tokenizers for probe in t.probes))
    by_text = [{probe.text: probe for probe in t.probes} for t in report.tokenizers]
    return [{"text": text, "cuts": [of.get(text) for of in by_text]} for text in texts]
