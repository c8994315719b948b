"use strict";
// The playground: text is sent to this page's own server a moment after the last key, and what comes back is drawn.
const EXAMPLES = {
  English: "It's 2026: the tokenizer's choice is nearly irreversible, so look before you commit.",
  Code: "def mean(values: list[float]) -> float:\n    if not values:\n        raise ValueError(\"no values\")\n    return sum(values) / len(values)\n",
  Numbers: "7 42 365 1024 12345 299792458 3.14159 1,234,567.89 2026-11-30 RC0402FR-0710KL",
  "Many scripts": "naïve café, Ελληνικά, Привет, שלום, مرحبا, हिन्दी, தமிழ், ไทย, မြန်မာ, 日本語, 한국어",
  "Emoji and invisible characters": "👩‍👩‍👧 🏳️‍🌈 e\u0301 \u200bzero\u00a0width\t\u202eorder\u202c",
  "Special tokens": "Text that spells <|endoftext|> or [SEP] or </s> is text, unless you say otherwise.",
};
const DELAY = 120;
const LINK_LIMIT = 32000;
const $ = (id) => document.getElementById(id);
const settings = JSON.parse($("settings").textContent);
const bytesOf = (text) => new TextEncoder().encode(text).length;
const { number } = Tokens;

// As dir="auto" has it, which takes seconds for a megabyte.
const RTL = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;
const directionOf = (text) => (RTL.test(text.slice(0, 1000).match(/\p{L}/u)?.[0] ?? "") ? "rtl" : "ltr");

let running, timer, last, shown = settings.shownTokens;

const say = (text) => { $("status").textContent = text; };
// What went wrong stays until the text changes, or what cut it goes well again.
let cuttingFailed = false;
const complain = (text, cutting = false) => { $("problem").textContent = text; cuttingFailed = cutting && text !== ""; };
const inText = () => ($("special").checked ? "token" : "text");

const call = async (path, body, signal) => {
  const response = await fetch(path, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  });
  const answer = await response.json().catch(() => ({ error: `${response.status} ${response.statusText}` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
};

const update = async () => {
  const text = $("text").value;
  const bytes = bytesOf(text);
  $("text").dir = directionOf(text);
  const characters = [...text].length;
  $("size").textContent = `${Tokens.plural(characters, "character")}, ${Tokens.plural(bytes, "byte")}`;
  running?.abort();
  document.body.classList.remove("busy");
  if (bytes > settings.maxBytes) { last = null; return complain(settings.tooLong, true); }
  running = new AbortController();
  const { signal } = running;
  document.body.classList.add("busy");
  try {
    last = await call("/api/cut", { text, special_tokens_in_text: inText(), shown }, signal);
    if (cuttingFailed) complain("");
    draw();
  } catch (error) {
    if (signal.aborted) return;
    complain(error instanceof TypeError ? "The playground does not answer: it may have been ended." : error.message, true);
  }
  document.body.classList.remove("busy");
};

const draw = () => {
  const ids = document.querySelector('[name="view"]:checked').value === "ids";
  const ratio = (a, b, digits = 2) => (b ? (a / b).toFixed(digits) : "–");
  const first = last.results[0].tokens;
  last.results.forEach((result, i) => {
    const cells = [
      number(result.tokens), ...(last.results.length > 1 ? [first ? `${ratio(result.tokens, first)}×` : "–"] : []),
      ratio(last.bytes, result.tokens), ratio(last.characters, result.tokens), number(result.distinct),
    ];
    const row = $("figures").tBodies[0].rows[i];
    cells.forEach((cell, j) => { row.cells[j + 1].textContent = cell; });
    const article = $("strips").children[i];
    const strip = article.querySelector(".strip");
    const counts = new Map();
    for (const token of result.strip.tokens) counts.set(token, (counts.get(token) || 0) + 1);
    const label = `Tokens of ${result.name}`;
    const where = result.tokens > result.strip.tokens.length ? " in what is shown" : "";
    const extra = (piece, token) => [["here", `${Tokens.plural(counts.get(result.strip.tokens[token]), "time")}${where}`]];
    Tokens.render(strip, result.strip, { ids, label, extra });
    article.querySelector(".count").textContent = Tokens.plural(result.tokens, "token");
    const note = article.querySelector(".strip-note");
    note.replaceChildren();
    if (!result.exact && result.tokens)
      note.append("This tokenizer changes the text or marks words: these are its pieces, which are not places in the text. ");
    if (result.tokens > result.strip.tokens.length) {
      note.append(`The first ${number(result.strip.tokens.length)} of ${Tokens.plural(result.tokens, "token")}. `);
      if (shown < 20 * settings.shownTokens) {
        const more = Tokens.node("button", "", "Show more");
        more.type = "button";
        more.addEventListener("click", () => { shown = Math.min(shown * 4, 20 * settings.shownTokens); update(); });
        note.append(more);
      }
    }
  });
  $("counts").textContent = last.results.map((result) => `${result.name}: ${Tokens.plural(result.tokens, "token")}`).join("; ");
};

const copy = async (text, what) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Not over http from another machine, or not permitted: by hand, as before there was a clipboard interface.
    const area = Tokens.node("textarea", "visually-hidden");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return complain(`${what} could not be copied: the browser does not allow it.`);
  }
  complain("");
  say(`${what} copied.`);
};

const fragment = () => {
  const parts = new URLSearchParams({ text: $("text").value.toWellFormed?.() ?? $("text").value });
  if ($("special").checked) parts.set("special", "1");
  return `#${parts}`;
};
const readFragment = () => {
  const parts = new URLSearchParams(location.hash.slice(1));
  if (!parts.has("text")) return;
  $("text").value = parts.get("text");
  $("special").checked = parts.get("special") === "1";
};

const later = (delay = DELAY) => {
  clearTimeout(timer);
  timer = setTimeout(update, delay);
};

Theme.start();
Tokens.start();
for (const name of Object.keys(EXAMPLES)) $("example").append(new Option(name, name));
$("example").addEventListener("change", () => {
  if (!$("example").value) return;
  $("text").value = EXAMPLES[$("example").value];
  later(0);
});
$("text").addEventListener("input", () => {
  shown = settings.shownTokens;
  $("example").value = "";
  if (!cuttingFailed) complain("");
  say("");
  later($("text").value.length > 50000 ? 3 * DELAY : DELAY);
});
$("special").addEventListener("change", () => later(0));
for (const radio of document.querySelectorAll('[name="view"]'))
  radio.addEventListener("change", () => { if (last) draw(); });
$("link").addEventListener("click", () => {
  const link = fragment();
  if (link.length > LINK_LIMIT) return complain(`The text is too long for a link (${number(link.length)} of ${number(LINK_LIMIT)} characters).`);
  history.replaceState(null, "", link);
  copy(location.href, "The link, with the text behind its #,");
});
$("json").addEventListener("click", async () => {
  try {
    const answer = await call("/api/json", { text: $("text").value, special_tokens_in_text: inText() });
    await copy(JSON.stringify(answer, null, 1), "The text, ids and pieces as JSON");
  } catch (error) { complain(error.message); }
});
addEventListener("hashchange", () => { readFragment(); later(0); });
readFragment();
if (!$("text").value) $("text").value = EXAMPLES.English;
update();
