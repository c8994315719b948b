"""report.html: a pure function of the report, whose text is shown and never run."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from shardpiece.evaluation.pages import content_security_policy, script_json
from shardpiece.evaluation.report import figures, render, render_sweep, samples, tables, values
from shardpiece.evaluation.report.summary import more, summary
from shardpiece.evaluation.report.sweep import summary as summary_of_sweep
from tests.evaluation.made_report import HOSTILE, NAMES, made_report, made_sweep


@pytest.fixture(scope="module")
def report():
    return made_report()


@pytest.fixture(scope="module")
def page(report):
    return render(report)


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.elements, self.scripts, self._in = [], [], None

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, data):
        if self._in == "script":
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def parsed(page):
    parser = Elements()
    parser.feed(page)
    return parser


def test_nothing_is_asked_for(parsed):
    for tag, attributes in parsed.elements:
        assert tag not in ("iframe", "object", "embed", "base", "form", "img", "audio", "video", "source")
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "action", "data", "srcset", "poster"):
                assert value.startswith(("#", "data:,")), (tag, value)


def test_only_own_scripts_may_run(page, parsed):
    [policy] = [a["content"] for t, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script")
    data, *own = parsed.scripts
    for script in own:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert json.loads(data)["tokenizers"] == list(NAMES)
    assert policy == content_security_policy(own)


def test_hostile_text_is_text(page):
    assert "<script>window.ran" not in page
    assert "onerror=&#34;" in page
    assert HOSTILE.split(" ")[0] not in page


def test_the_same_report_is_the_same_page(report, page):
    assert render(report) == page
    assert render(type(report).model_validate_json(report.model_dump_json())) == page


def test_everything_is_there(report, page):
    for definition in report.definitions.values():
        assert definition.title in page
    assert "RC0402FR-0710KL" in page
    assert "ja: no words in this group" in page
    assert "small bytes: a note of its own" in page
    for t in tables.overview(report).rows:
        assert t[3].text in page


@pytest.mark.parametrize(
    ("names", "groups", "everything"),
    [
        (NAMES[:1], None, True),
        (NAMES, [""], False),
        (NAMES, [], False),
        ([f"t{i}" for i in range(12)], ["a", "b"], True),
    ],
)
def test_any_report_is_drawn(names, groups, everything):
    page = render(made_report(names, groups, everything))
    assert "nan" not in re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL).lower().split()


def test_nothing_at_all():
    report = made_report(NAMES[:2], [], False)
    [finding] = [f for f in summary(report) if f.topic == "Compression"]
    assert finding.sentences == ["There is no text, so there is nothing to compare."]


def test_summary_says_who_is_better_and_by_how_much(report):
    found = {finding.topic: " ".join(finding.sentences) for finding in summary(report)}
    tokens = {t.name: t.overall.tokens for t in report.tokenizers}
    percent = round(100 * (tokens["word pieces"] / tokens["large"] - 1))
    assert f"word pieces {percent}\u00a0% more" in found["Compression"]
    assert found["Compression"].startswith("large needs the fewest tokens")
    assert "200,019 tokens against" in found["Compression"]
    assert "word pieces does not keep all of the text" in found["Compression"]
    assert re.search(r"large needs the fewest tokens in \d of 7 groups", found["By group"])
    assert "word pieces: gives back 41.0\u00a0% of the documents" in found["Fidelity"]
    assert "small bytes and large give every document tried back byte for byte" in found["Fidelity"]
    assert "word pieces treats the languages most alike" in found["Languages side by side"]


def test_summary_leaves_small_differences_out(report):
    near = report.model_copy(deep=True)
    near.tokenizers = near.tokenizers[:2]
    for t in near.tokenizers:
        t.overall = t.overall.model_copy(update={"tokens": 1000 + 9 * (t.name == "large")})
        t.groups = {g: m.model_copy(update={"tokens": 100}) for g, m in t.groups.items()}
    found = {finding.topic: " ".join(finding.sentences) for finding in summary(near)}
    assert found["Compression"].startswith("small bytes and large need about as many tokens")
    assert "fewest" not in found["By group"]


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.0, "about as many"), (1.019, "about as many"), (0.985, "about as many"), (1.12, "12\u00a0% more"), (0.4, "60\u00a0% fewer"),
     (2.0, "2.0 times as many"), (12.3, "12 times as many")],
)  # fmt: skip
def test_more(ratio, text):
    assert more(ratio) == text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [(None, "ratio", "–"), (0.0, "share", "0\u00a0%"), (1.0, "share", "100\u00a0%"), (0.99996, "share", "> 99.99\u00a0%"),
     (0.00004, "share", "< 0.01\u00a0%"), (0.034, "share", "3.4\u00a0%"), (1234567, "count", "1,234,567"), (36864, "bytes", "36.9 KB"),
     (12, "bytes", "12 B"), (1234567, "bytes", "1.2 MB")],
)  # fmt: skip
def test_values(value, kind, text):
    assert values.shown(value, kind) == text


def test_samples_are_the_text(report):
    for sample, made in zip(report.samples, samples.samples(report), strict=True):
        for name, cut in zip(NAMES, made["strips"], strict=True):
            said = b"".join(bytes.fromhex(cut["strip"]["pieces"][i][1]) for i in cut["strip"]["tokens"])
            if cut["exact"]:
                assert said == sample.text.encode()
            assert len(cut["strip"]["tokens"]) == len(sample.tokens[name].ids)
            assert set(map(int, cut["counts"])) == set(sample.tokens[name].ids)


def test_plots_are_of_the_largest_groups():
    report = made_report(NAMES, [f"g{i:03}" for i in range(100)])
    plot = figures.figures(report)["by-group"]["choices"][0]
    assert len(plot["categories"]) == figures.GROUPS
    assert "g099" in plot["categories"]
    assert "g000" not in plot["categories"]
    assert f"of the {figures.GROUPS} with most text" in render(report)


def test_json_inside_a_script_cannot_end_it():
    hostile = {"</script>": "<!-- <script> & \u2028 \ud800"}
    text = script_json(hostile)
    assert not set("<>&\u2028\ud800") & set(text)
    assert json.loads(text) == hostile
    with pytest.raises(ValueError, match="Out of range"):
        script_json(float("nan"))


def test_sweep_says_what_to_choose_by():
    sweep = made_sweep()
    page = render_sweep(sweep)
    assert "<script>window.ran" not in page
    assert page == render_sweep(type(sweep).model_validate_json(sweep.model_dump_json()))
    found = {finding.topic: finding.sentences for finding in summary_of_sweep(sweep)}
    assert found["Compression"][0].startswith("At 8,000 tokens unigram (counted) needs the fewest for the text; ")
    assert "bpe (counted) 4\u00a0% more" in found["Compression"][0]
    assert "17\u00a0% from 8,000 to 16,000" in found["Size"][0]
    assert "(temperature 0.3) treats the groups most alike (Gini coefficient of fertility 0.200" in found["Balance"][0]


@pytest.mark.parametrize(
    "given", [{"groups": [""]}, {"groups": []}, {"weights": ["counted"]}, {"sizes": [8000]}, {"sizes": []}]
)
def test_any_sweep_is_drawn(given):
    assert "Tokenizers to choose from" in render_sweep(made_sweep(**given))
