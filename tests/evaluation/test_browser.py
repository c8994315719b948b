"""Report and playground in a real Chromium."""

import json
import queue
import re
import threading
import time

import pytest

import shardpiece
from shardpiece.evaluation.report import render, render_sweep
from tests.conftest import TEXTS
from tests.evaluation.browser import chromium, complaints_of, picture, requests_of, set_theme, set_width
from tests.evaluation.made_report import HOSTILE, made_report, made_sweep

WAIT = 60
# What stands on what: the contrast that WCAG 2 asks of text.
PAIRS = [
    ("--ink", "--page"), ("--ink", "--raised"), ("--quiet", "--page"), ("--quiet", "--raised"), ("--link", "--page"), ("--warn", "--page"),
    ("--ink", "--mark"), ("--token-ink", "--token-a"), ("--token-ink", "--token-b"), ("--token-symbol", "--token-a"), ("--token-symbol", "--token-b"),
]  # fmt: skip


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chromium")) as session:
        yield session


@pytest.fixture
def browser(session):
    """The session as new: a wide window, the light theme, an empty log."""
    session.get("about:blank")
    set_width(session, 1280)
    set_theme(session, dark=False)
    requests_of(session), complaints_of(session)
    return session


def until(condition, what):
    end = time.monotonic() + WAIT
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.03)
    raise AssertionError(f"not within {WAIT} s: {what}")


def find(session, selector):
    return session.find_element("css selector", selector)


def press(session, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(session).send_keys(*keys).perform()


def point_at(session, element):
    from selenium.webdriver import ActionChains

    session.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    ActionChains(session, duration=20).move_to_element(element).perform()


def tip(session):
    return until(lambda: find(session, "#tip").is_displayed() and find(session, "#tip").text, "a note on the token")


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrasts(session):
    names = sorted({name for pair in PAIRS for name in pair})
    colors = session.execute_script(
        "return Object.fromEntries(arguments[0].map((n) => [n, Theme.color(n).match(/[0-9.]+/g).map(Number)]))", names
    )
    found = {}
    for above, below in PAIRS:
        bright, dim = sorted((luminance(colors[above]), luminance(colors[below])), reverse=True)
        found[above, below] = (bright + 0.05) / (dim + 0.05)
    return found


def no_wider_than_the_window(session):
    return session.execute_script("return document.documentElement.scrollWidth <= innerWidth")


# --- report -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(render(made_report()), encoding="utf-8")
    return path


@pytest.fixture
def report(browser, report_file):
    browser.get(report_file.as_uri())
    return browser


def test_report_asks_for_nothing_and_runs_nothing(report, report_file):
    for option in report.find_elements("css selector", "#sample option"):
        option.click()
    assert "<script>window.ran=1" in find(report, "#sample-text").get_attribute("textContent")
    assert report.execute_script("return window.ran") is None
    assert {url for url in requests_of(report) if not url.startswith(("data:", "blob:"))} == {report_file.as_uri()}
    assert complaints_of(report) == []


def test_tables_sort_and_filter(report):
    def column(n):
        return report.execute_script(
            "return [...document.querySelectorAll(`#groups tbody tr > :nth-child(${arguments[0]})`)].map((c) => c.textContent)",
            n,
        )

    report.execute_script("document.querySelector('#groups').closest('details').open = true")
    button = find(report, "#groups thead th:nth-child(3) button")  # tokens
    button.click()
    numbers = [int(text.replace(",", "")) for text in column(3)]
    assert numbers == sorted(numbers, reverse=True)
    assert button.find_element("xpath", "..").get_attribute("aria-sort") == "descending"
    button.send_keys("\n")
    assert [int(text.replace(",", "")) for text in column(3)] == sorted(numbers)
    assert button.find_element("xpath", "..").get_attribute("aria-sort") == "ascending"
    for _ in range(2):  # what has no value is last either way
        find(report, "#groups thead th:nth-child(6) button").click()
        assert column(1)[-3:] == ["ja"] * 3
    assert len(report.find_elements("css selector", "#groups [aria-sort]")) == 1
    find(report, "#groups thead th:nth-child(1) button").click()
    assert column(1) == sorted(column(1), key=lambda text: (text[0].isalpha(), text))
    find(report, "[data-filters=groups]").send_keys("LARGE")
    assert report.execute_script("return document.querySelectorAll('#groups tbody tr:not([hidden])').length") == 7


def test_tokens_by_pointer_and_by_keyboard(report):
    from selenium.webdriver.common.keys import Keys

    assert not find(report, "#tip").is_displayed()
    point_at(report, find(report, "#strips .token:nth-child(2)"))
    assert "id" in tip(report)
    assert "27 73" in tip(report)  # the bytes of 's
    report.execute_script("document.querySelector('[name=view]').focus()")
    press(report, Keys.TAB)
    assert report.execute_script("return document.activeElement.dataset.index") == "0"
    press(report, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert report.execute_script("return document.activeElement.dataset.index") == "2"
    assert "position 3 of" in find(report, "#strips .token:nth-child(3)").get_attribute("aria-label")
    assert "position" in tip(report)
    press(report, Keys.END)
    last = report.switch_to.active_element
    assert last.get_attribute("aria-selected") == "true"
    assert not last.find_elements("xpath", "following-sibling::*")
    press(report, Keys.ESCAPE)
    assert not find(report, "#tip").is_displayed()
    find(report, "[name=view][value=ids]").click()
    assert find(report, "#strips .token").text.isdigit()


def test_plots_are_drawn_for_every_choice(report):
    until(lambda: len(report.find_elements("css selector", "[data-plot] .main-svg")) >= 4, "the plots")
    assert len(report.find_elements("css selector", "#figure-by-group .scatterlayer .trace")) == 3
    before = find(report, "#figure-by-group .xtitle").text
    find(report, "[data-figure=by-group] option:nth-child(3)").click()
    assert find(report, "#figure-by-group .xtitle").text != before
    for option in report.find_elements("css selector", "[data-figure=vocabulary] option"):
        option.click()
        assert report.find_elements("css selector", "#figure-vocabulary .barlayer .point")
    assert complaints_of(report) == []


def test_sweep_is_drawn(browser, tmp_path):
    path = tmp_path / "sweep.html"
    path.write_text(render_sweep(made_sweep()), encoding="utf-8")
    browser.get(path.as_uri())
    for name in ("curves", "parameters", "by-group"):
        lines = browser.find_elements("css selector", f"#figure-{name} .scatterlayer .trace")
        assert len(lines) == 4
    find(browser, "#cells thead th:nth-child(4) button").click()
    assert find(browser, "#cells tbody tr th").text == "unigram"
    assert browser.execute_script("return window.ran") is None
    assert complaints_of(browser) == []


@pytest.mark.slow
def test_report_in_both_themes_and_all_widths(report):
    for choice, dark in (("auto", False), ("auto", True), ("light", True), ("dark", False)):
        set_theme(report, dark)
        find(report, f"#theme option[value={choice}]").click()
        is_dark = dark if choice == "auto" else choice == "dark"
        background = report.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (background != "rgb(255, 255, 255)") == is_dark
        low = {pair: round(value, 2) for pair, value in contrasts(report).items() if value < 4.5}
        assert low == {}, (choice, dark)
    for width in (320, 700, 1280, 1920):
        set_width(report, width)
        until(lambda: no_wider_than_the_window(report), f"a page no wider than {width}")


@pytest.mark.slow
def test_report_is_printed(report):
    set_theme(report, dark=True)
    report.execute_script(
        "addEventListener('beforeprint', () => window.drawn = getComputedStyle(document.querySelector('.xtitle')).fill)"
    )
    made = report.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})
    assert len(made["data"]) > 20_000
    assert max(map(int, re.findall(r"\d+", report.execute_script("return window.drawn"))[:3])) < 80
    assert "theme" not in report.execute_script("return {...document.documentElement.dataset}")
    assert complaints_of(report) == []


# --- playground ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer():
    words = shardpiece.WordTable.from_texts([text for text in TEXTS if text], "gpt2")
    return shardpiece.train_bpe(words, 300, special_tokens=["<|endoftext|>"])


@pytest.fixture(scope="module")
def address(tokenizer, tmp_path_factory):
    """The playground as the command serves it; its thread ends with the suite's process."""
    pytest.importorskip("flask")
    pytest.importorskip("waitress")
    from shardpiece.evaluation.playground.server import serve

    words = shardpiece.WordTable.from_texts(["low lower lowest"], "bert")
    directory = tmp_path_factory.mktemp("tokenizers")
    shardpiece.save(tokenizer, str(directory / "bytes"))
    shardpiece.save(shardpiece.train(words, "wordpiece", vocab_size=40), str(directory / "words"))
    said = queue.Queue()
    choices = [str(directory / name) for name in ("bytes", "words")]
    threading.Thread(target=serve, args=(choices, "127.0.0.1", 0, (), said.put), daemon=True).start()
    while not (found := re.search(r"playground at (\S+)", said.get(timeout=2 * WAIT))):
        pass
    return found[1]


@pytest.fixture
def playground(browser, address):
    browser.get(address)
    until(lambda: count(browser) is not None, "the first tokens")
    return browser


def count(session):
    text = find(session, "#figures tbody td").text
    return int(text.replace(",", "")) if text != "–" else None


def drawn(session):
    return session.execute_script("return document.querySelectorAll('#strips article:first-child .token').length")


def put(session, text):
    """As a paste does."""
    session.execute_script(
        "const t = document.getElementById('text'); t.value = arguments[0]; t.dispatchEvent(new Event('input', {bubbles: true}))", text
    )  # fmt: skip


def shows(session, tokenizer, text, **settings):
    expected = len(tokenizer.encode(text, **settings))
    until(lambda: count(session) == expected, f"{expected} tokens")


def test_typing_updates(playground, tokenizer, address):
    area = find(playground, "#text")
    area.clear()
    area.send_keys("low ")
    shows(playground, tokenizer, "low ")
    area.send_keys("lower runs")
    shows(playground, tokenizer, "low lower runs")
    shown = find(playground, "#strips .strip").get_attribute("textContent")
    assert shown == "low·lower·runs"
    put(playground, "")
    shows(playground, tokenizer, "")
    assert {url for url in requests_of(playground) if not url.startswith(("data:", address))} == set()
    assert complaints_of(playground) == []


def test_what_cannot_be_seen_is_shown(playground, tokenizer):
    text = "a\u200b\t€ \U0001f3f3\ufe0f\u0301\n"
    put(playground, text)
    shows(playground, tokenizer, text)
    shown = find(playground, "#strips .strip").get_attribute("textContent")
    assert "⇥" in shown
    assert "<E2>" in shown
    assert "↵" in shown
    joined = find(playground, "#strips .token.joined")
    point_at(playground, joined)
    assert "part of" in tip(playground)
    assert "U+" in tip(playground)


def test_html_is_shown_and_not_run(playground, tokenizer):
    put(playground, HOSTILE)
    shows(playground, tokenizer, HOSTILE)
    assert find(playground, "#strips .strip").get_attribute("textContent").startswith("</script><script>window.ran=1")
    time.sleep(0.1)
    assert playground.execute_script("return window.ran") is None
    assert not playground.find_elements("css selector", "main img, main script")


def test_special_tokens_on_request(playground, tokenizer):
    put(playground, "a<|endoftext|>")
    shows(playground, tokenizer, "a<|endoftext|>")
    find(playground, "#special").click()
    shows(playground, tokenizer, "a<|endoftext|>", special_tokens_in_text="token")


def test_a_megabyte_and_more(playground, tokenizer):
    text = ("The low lower lowest newest widest river runs. " * 23000)[: 1 << 20]
    began = time.monotonic()
    put(playground, text)
    playground.execute_script("return 1")  # the page answers while the text is being cut
    assert time.monotonic() - began < 10
    shows(playground, tokenizer, text)
    assert len(playground.find_elements("css selector", "#strips article:first-child .token")) == 2000
    find(playground, "#strips .strip-note button").click()
    until(
        lambda: len(playground.find_elements("css selector", "#strips article:first-child .token")) == 8000,
        "more tokens",
    )
    put(playground, text + "a")
    until(lambda: "1,048,576 bytes" in find(playground, "#problem").text, "a refusal")
    put(playground, "low")
    shows(playground, tokenizer, "low")
    assert find(playground, "#problem").text == ""


@pytest.mark.slow
def test_link_and_json(playground, tokenizer, address):
    playground.execute_cdp_cmd(
        "Browser.grantPermissions",
        {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": address},
    )
    text = "a & b=c #d <é> 100%\n+ low"
    put(playground, text)
    shows(playground, tokenizer, text)
    find(playground, "#link").click()
    until(lambda: "copied" in find(playground, "#status").text, "the link")
    link = playground.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert link == playground.current_url
    assert link.startswith(f"{address}#text=")
    find(playground, "#json").click()
    until(lambda: "JSON copied" in find(playground, "#status").text, "the JSON")
    copied = json.loads(playground.execute_async_script("navigator.clipboard.readText().then(arguments[0])"))
    assert copied["text"] == text
    assert copied["tokenizers"][0]["ids"] == tokenizer.encode(text)
    playground.get("about:blank")
    playground.get(link)
    shows(playground, tokenizer, text)
    assert find(playground, "#text").get_property("value") == text
    assert not [url for url in requests_of(playground) if "low" in url.partition("#")[0]]
    put(playground, "a" * 40000)
    find(playground, "#link").click()
    until(lambda: "too long for a link" in find(playground, "#problem").text, "a refusal")


@pytest.mark.slow
def test_playground_in_both_themes_and_all_widths(playground, tmp_path):
    for dark in (False, True):
        set_theme(playground, dark)
        low = {pair: round(value, 2) for pair, value in contrasts(playground).items() if value < 4.5}
        assert low == {}, dark
    for width in (320, 700, 1920):
        set_width(playground, width)
        until(lambda: no_wider_than_the_window(playground), f"a page no wider than {width}")
    picture(playground, tmp_path / "page.png")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
