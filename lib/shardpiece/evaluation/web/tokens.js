"use strict";
// Strips of tokens: made from the JSON of segments.strip, as text nodes alone, so that no text of a corpus can become markup.
// A strip is one stop of the Tab key; arrow keys, Home and End move in it. What is pointed at or focused is described beside it.
const Tokens = (() => {
  const node = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const hexBytes = (hex) => (hex.match(/../g) || []).join(" ");
  const numbers = new Intl.NumberFormat("en");
  const number = (n) => numbers.format(n);
  const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
  const spoken = (piece) => piece[2].map((part) => part[0]).join("") || "(nothing)";

  // `extra(piece, tokenIndex)`: more [name, value] pairs for the note on a token.
  const render = (strip, data, { ids = false, label, extra = () => [], limit = Infinity } = {}) => {
    const part = new Map();
    for (const [first, last, character] of data.shared)
      for (let i = first; i <= last; i++) part.set(i, [...(part.get(i) || []), [first, last, character]]);
    strip.describe = (i) => {
      const piece = data.pieces[data.tokens[i]];
      const bytes = piece[1].length / 2;
      const facts = [
        ["token", spoken(piece)],
        ["id", String(piece[0])],
        ["bytes", bytes ? `${hexBytes(piece[1])} (${number(bytes)})` : "none"],
      ];
      for (const [first, last, character] of part.get(i) || []) {
        const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
        facts.push(["part of", `${character} U+${code}, ${i - first + 1} of ${last - first + 1} tokens`]);
      }
      facts.push(...extra(piece, i), ["position", `${number(i + 1)} of ${plural(data.tokens.length, "token")}`]);
      return facts;
    };
    const shown = Math.min(limit, data.tokens.length);
    const content = document.createDocumentFragment();
    for (let i = 0; i < shown; i++) {
      const piece = data.pieces[data.tokens[i]];
      const element = node("span", `token ${i % 2 ? "b" : "a"}`);
      element.setAttribute("role", "option");
      element.setAttribute("aria-selected", "false");
      element.tabIndex = i === 0 ? 0 : -1;
      element.dataset.index = i;
      if (ids) element.textContent = piece[0];
      else appendText(element, piece);
      const joined = (part.get(i) || []).some(([, last]) => i < last);
      if (joined) element.classList.add("joined");
      if (element.textContent.length <= 24 && !element.textContent.includes("\n")) element.classList.add("whole");
      element.setAttribute("aria-label", strip.describe(i).map((fact) => fact.join(" ")).join(", "));
      content.append(element);
      if (!ids && piece[1].endsWith("0a")) content.append("\n");
    }
    strip.replaceChildren(content);
    strip.classList.add("strip");
    strip.classList.toggle("ids", ids);
    strip.setAttribute("role", "listbox");
    strip.setAttribute("aria-orientation", "horizontal");
    strip.setAttribute("aria-label", label);
    strip.dir = ids ? "ltr" : "auto";
    return shown;
  };

  const appendText = (element, piece) => {
    if (!piece[2].length) element.append(node("span", "symbol", "∅"));
    // A mark that combines with what is before it needs something to stand on.
    else if (/^\p{M}/u.test(piece[2][0][0])) element.append(node("span", "symbol", "◌"));
    // Lines end behind the symbol for it; behind the last one the line ends outside of the token.
    piece[2].forEach(([text, symbol], i) => {
      const last = i === piece[2].length - 1;
      if (symbol) element.append(node("span", "symbol", text.replace(last ? /↵(?!$)/g : /↵/g, "↵\n")));
      else element.append(text);
    });
  };

  let tip, hideLater, current;
  const show = (element) => {
    clearTimeout(hideLater);
    current = element;
    const list = node("dl");
    for (const [name, value] of element.closest(".strip").describe(Number(element.dataset.index)))
      list.append(node("dt", "", name), node("dd", "", value));
    tip.replaceChildren(list);
    tip.hidden = false;
    place(element);
  };
  const place = (element) => {
    const box = element.getClientRects()[0] || element.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8));
    const below = box.bottom + tip.offsetHeight + 10 < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? box.bottom + 4 : Math.max(4, box.top - tip.offsetHeight - 4)}px`;
  };
  const hide = () => { clearTimeout(hideLater); tip.hidden = true; };
  const soon = () => { clearTimeout(hideLater); hideLater = setTimeout(hide, 200); };
  const focus = (strip, element) => {
    for (const other of strip.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    for (const other of strip.querySelectorAll('[aria-selected="true"]')) other.setAttribute("aria-selected", "false");
    element.tabIndex = 0;
    element.setAttribute("aria-selected", "true");
    element.focus();
  };
  const key = (event) => {
    if (event.key === "Escape") return hide();
    const token = event.target.closest?.(".token");
    if (!token || event.ctrlKey || event.metaKey || event.altKey) return;
    const strip = token.parentElement;
    const back = getComputedStyle(strip).direction === "rtl" ? "ArrowRight" : "ArrowLeft";
    const ahead = back === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
    const next = {
      [back]: token.previousElementSibling, [ahead]: token.nextElementSibling,
      Home: strip.firstElementChild, End: strip.lastElementChild,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    if (next) focus(strip, next);
  };
  const start = () => {
    tip = node("div");
    tip.id = "tip";
    tip.setAttribute("role", "tooltip");
    tip.hidden = true;
    document.body.append(tip);
    const over = (event) => {
      const token = event.target.closest?.(".token");
      if (token) show(token);
      else if (tip.contains(event.target)) clearTimeout(hideLater);
    };
    document.addEventListener("pointerover", over);
    document.addEventListener("pointerout", (event) => { if (event.target.closest?.(".token, #tip")) soon(); });
    document.addEventListener("focusin", (event) => { if (event.target.matches?.(".token")) show(event.target); });
    document.addEventListener("focusout", (event) => { if (event.target.matches?.(".token")) hide(); });
    document.addEventListener("keydown", key);
    // The note goes with its token, as long as that can be seen.
    document.addEventListener("scroll", () => {
      if (tip.hidden) return;
      const box = current.getBoundingClientRect();
      if (!current.isConnected || box.bottom < 0 || box.top > innerHeight) hide();
      else place(current);
    }, { capture: true, passive: true });
    document.addEventListener("click", (event) => {
      const token = event.target.closest?.(".token");
      if (token) focus(token.parentElement, token);
    });
  };
  return { start, render, node, number, plural };
})();
