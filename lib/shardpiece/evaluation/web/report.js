"use strict";
// The report: tables that sort, plots, samples. Everything it shows is in the page.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);

  // --- tables: sorted by the buttons in their heads, filtered by what is typed --------------------------------------------

  const collator = new Intl.Collator("en", { numeric: true });
  const sortTable = (table, column, ascending) => {
    const value = (row) => {
      const cell = row.cells[column];
      if ("none" in cell.dataset) return null;
      return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent;
    };
    // What has no value is last either way; rows that are alike stay in order.
    const order = (a, b) => {
      if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null);
      const difference = typeof a[0] === "number" ? a[0] - b[0] : collator.compare(a[0], b[0]);
      return ascending ? difference : -difference;
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].map((row) => [value(row), row]).sort(order).map(([, row]) => row));
  };
  for (const table of document.querySelectorAll("table.sortable"))
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        // Numbers begin with the largest, text with the first.
        const first = head.classList.contains("number") ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const direction = head.getAttribute("aria-sort") === first ? other : first;
        for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", direction);
        sortTable(table, column, direction === "ascending");
      });
    });
  for (const input of document.querySelectorAll("[data-filters]"))
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      const rows = [...$(input.dataset.filters).tBodies[0].rows];
      for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      const left = rows.filter((row) => !row.hidden).length;
      input.closest("p").querySelector("[role=status]").textContent = wanted ? `${left} of ${Tokens.plural(rows.length, "row")}` : "";
    });
  const comparison = $("comparison");
  if (comparison) {
    const choose = () => {
      for (const part of document.querySelectorAll(".comparison")) part.hidden = part.dataset.table !== comparison.value;
    };
    comparison.addEventListener("change", choose);
    choose();
  }

  // --- plots: a tokenizer has one colour and one mark, line or pattern in all of them -------------------------------------

  // Okabe and Ito's colours, which differ for the colour-blind too, darker on white where they would be too pale to see.
  const COLORS = {
    light: ["#0072b2", "#c14f00", "#007a5a", "#a8467f", "#8a6a00", "#2b7fb3", "#1b1f24", "#6d6d6d"],
    dark: ["#56b4e9", "#f0954a", "#2fc79a", "#e59ac4", "#f0d84a", "#9ecbff", "#e8eaed", "#a0a0a0"],
  };
  // (Hollow where unknown tokens make a value doubtful.)
  const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "x", "star", "cross", "hexagon"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const PATTERNS = ["", "/", "x", "-", "|", "+", ".", "\\"];
  const at = (list, i) => list[i % list.length];
  // plotly.js reads some of HTML in texts, such as <b> and links; names are to be shown as they are.
  const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const short = (text, most = 28) => ([...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text);

  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

  const traces = {
    dots: (choice, colors) => [
      ...(choice.reference ? [{
        type: "scatter", mode: "markers", name: plain(choice.reference.name), x: choice.reference.values, y: rows(choice),
        marker: { symbol: "line-ns-open", size: 11, color: colors.quiet, line: { width: 2 } },
      }] : []),
      ...choice.series.map((series, i) => ({
        type: "scatter", mode: "markers", name: plain(short(series.name)), x: series.values, y: rows(choice),
        marker: {
          symbol: series.doubtful.map((doubt) => at(SYMBOLS, i) + (doubt ? "-open" : "")), size: 9, color: at(colors.series, i),
          line: { width: series.doubtful.map((doubt) => (doubt ? 1.5 : 1)), color: series.doubtful.map((doubt) => (doubt ? at(colors.series, i) : colors.page)) },
        },
      })),
    ].map((trace) => ({ ...trace, customdata: choice.categories.map(plain), hovertemplate: `%{customdata}: %{x:${choice.percent ? ".1%" : ".2f"}}<extra>${trace.name}</extra>` })),
    bars: (choice, colors) => choice.series.map((series, i) => ({
      type: "bar", orientation: "h", name: plain(short(series.name)), x: series.values, y: rows(choice),
      customdata: choice.categories.map(plain),
      marker: { color: at(colors.series, i), pattern: { shape: at(PATTERNS, i), fillmode: "overlay", fgcolor: colors.page, size: 6, solidity: 0.2 } },
      hovertemplate: `%{customdata}: %{x:,}<extra>${plain(short(series.name))}</extra>`,
    })),
    lines: (choice, colors) => choice.series.map((series, i) => ({
      type: "scatter", mode: "lines+markers", name: plain(short(series.name)), x: series.x, y: series.y,
      line: { color: at(colors.series, i), dash: at(DASHES, i), width: 2 }, marker: { symbol: at(SYMBOLS, i), size: 9 },
      hovertemplate: `%{x:,}: %{y:${choice.percent ? ".1%" : ".3f"}}<extra>${plain(short(series.name))}</extra>`,
    })),
    curve: (choice, colors) => choice.series.map((series, i) => ({
      type: "scatter", mode: "lines", name: plain(short(series.name)), x: series.x, y: series.y,
      line: { color: at(colors.series, i), dash: at(DASHES, i), width: 2 },
      hovertemplate: `rank %{x:,}: %{y:,} times<extra>${plain(short(series.name))}</extra>`,
    })),
  };
  // Rows go by number, so that two groups of one name stay two.
  const rows = (choice) => choice.categories.map((_, i) => i);

  // Axes are for the values that are not doubtful; the others may lie outside.
  const extent = (choice) => {
    const sure = choice.series.flatMap((series) => series.values.filter((value, i) => value !== null && !series.doubtful[i]));
    if (!sure.length) return choice.log ? {} : { rangemode: "tozero" };
    const [low, high] = [Math.min(...sure, ...(choice.reference?.values ?? []).filter((value) => value !== null)), Math.max(...sure)];
    if (choice.log) return low > 0 ? { range: [Math.log10(Math.min(low, 1) / 1.15), Math.log10(Math.max(high, 1) * 1.15)] } : {};
    return high > 0 ? { range: [0, high * 1.06] } : { rangemode: "tozero" };
  };
  const layout = (figure, choice, colors, width) => {
    const axis = { gridcolor: colors.line, linecolor: colors.line, zerolinecolor: colors.line, tickcolor: colors.line, automargin: true };
    const common = {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: colors.ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 10, r: 12, t: 8, b: 45 },
      legend: { orientation: "h", x: 0, y: 1.01, xanchor: "left", yanchor: "bottom" },
      hoverlabel: { bgcolor: colors.raised, bordercolor: colors.strong, font: { color: colors.ink } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colors.quiet, activecolor: colors.ink }, dragmode: "zoom",
    };
    if (figure.kind === "curve")
      return {
        ...common, height: 420, margin: { ...common.margin, t: 34 },
        xaxis: { ...axis, type: "log", title: { text: choice.x }, dtick: 1, exponentformat: "none", tickformat: ",d" },
        yaxis: { ...axis, type: "log", title: { text: choice.y }, dtick: 1, exponentformat: "none", tickformat: ",d" },
      };
    if (figure.kind === "lines") {
      const sizes = [...new Set(choice.series.flatMap((series) => series.x))].filter((size) => size > 0).sort((a, b) => a - b);
      return {
        ...common, height: 400, margin: { ...common.margin, t: 34 },
        xaxis: { ...axis, type: "log", title: { text: choice.x }, tickvals: sizes, ticktext: sizes.map((size) => (size < 1e6 ? Tokens.number(size) : compact.format(size))) },
        yaxis: { ...axis, title: { text: choice.y }, tickformat: choice.percent ? ".0%" : "" },
      };
    }
    const count = choice.categories.length;
    const height = figure.kind === "bars" ? count * (8 * choice.series.length + 12) : count * 21;
    return {
      ...common, height: Math.max(170, height + 105), barmode: "group", bargap: 0.25,
      legend: { ...common.legend, traceorder: "normal", y: 1 + 14 / Math.max(height, 65) },
      margin: { ...common.margin, t: 34 },
      xaxis: {
        ...axis, title: { text: choice.x }, tickformat: choice.percent ? ".0%" : "",
        ...(choice.log ? { type: "log", tickvals: [0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20] } : {}),
        ...(figure.kind === "dots" ? extent(choice) : { rangemode: "tozero" }),
      },
      yaxis: {
        ...axis, tickvals: rows(choice), ticktext: choice.categories.map((name) => plain(short(name, width < 600 ? 14 : 28))),
        range: [count - 0.4, -0.6], zeroline: false, fixedrange: count < 12,
      },
      ...(choice.log ? { shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: colors.strong, width: 1 } }] } : {}),
    };
  };

  const isDark = () => {
    const theme = document.documentElement.dataset.theme;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const draw = (place) => {
    const id = place.dataset.plot;
    const figure = data.figures[id];
    const select = document.querySelector(`[data-figure="${id}"]`);
    const choice = figure.choices[select ? Number(select.value) : 0];
    const colors = {
      series: COLORS[isDark() ? "dark" : "light"], ink: Theme.color("--ink"), quiet: Theme.color("--quiet"),
      line: Theme.color("--line"), strong: Theme.color("--strong-line"), page: Theme.color("--page"), raised: Theme.color("--raised"),
    };
    if (!place.drawn) place.replaceChildren();
    place.drawn = true;
    const { height, ...rest } = layout(figure, choice, colors, place.clientWidth);
    place.style.height = `${height}px`;
    // The buttons are named: some others of plotly.js would ask its makers' servers.
    Plotly.react(place, traces[figure.kind](choice, colors), rest, {
      displaylogo: false, responsive: true, scrollZoom: false, displayModeBar: place.clientWidth >= 600,
      modeBarButtons: [["toImage"], ["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]],
      toImageButtonOptions: { format: "svg", filename: id },
    });
  };
  const plots = [...document.querySelectorAll("[data-plot]")];
  const drawAll = () => plots.forEach(draw);
  for (const select of document.querySelectorAll("[data-figure]"))
    select.addEventListener("change", () => draw(document.querySelector(`[data-plot="${select.dataset.figure}"]`)));

  // --- samples ------------------------------------------------------------------------------------------------------------

  const sampleSelect = $("sample");
  const showSample = () => {
    const sample = data.samples[Number(sampleSelect.value)];
    const ids = document.querySelector('[name="view"]:checked').value === "ids";
    $("sample-about").textContent = `${sample.group}, document ${sample.id}: ${Tokens.plural(sample.bytes, "byte")}${sample.cut ? ", the beginning of a longer document" : ""}.`;
    $("sample-text").textContent = sample.text;
    $("strips").replaceChildren(...data.tokenizers.map((name, i) => {
      const cut = sample.strips[i];
      const article = document.createElement("article");
      const title = Tokens.node("h3", "", `${name} `);
      const strip = Tokens.node("div");
      article.append(title);
      if (!cut) {
        article.append(Tokens.node("p", "quiet small", "Not cut by this tokenizer."));
        return article;
      }
      title.append(Tokens.node("span", "quiet count", Tokens.plural(cut.strip.tokens.length, "token")));
      const extra = (piece) => (String(piece[0]) in cut.counts ? [["in all the text", Tokens.plural(cut.counts[piece[0]], "time")]] : []);
      Tokens.render(strip, cut.strip, { ids, label: `The sample as tokens of ${name}`, extra });
      article.append(strip);
      if (!cut.exact) article.append(Tokens.node("p", "strip-note", "This tokenizer changes the text or marks words: these are its pieces, which are not places in the text."));
      return article;
    }));
  };

  Theme.start();
  Tokens.start();
  if (sampleSelect) {
    const groups = new Map();
    data.samples.forEach((sample, i) => {
      if (!groups.has(sample.group)) {
        const group = document.createElement("optgroup");
        group.label = sample.group;
        groups.set(sample.group, group);
        sampleSelect.append(group);
      }
      groups.get(sample.group).append(new Option(`${sample.group}: ${short(sample.id, 40)}`, i));
    });
    sampleSelect.addEventListener("change", showSample);
    for (const radio of document.querySelectorAll('[name="view"]')) radio.addEventListener("change", showSample);
    showSample();
  }
  drawAll();
  Theme.changed(drawAll);
  // On paper parts are open, and everything is in ink on white.
  let closed = [], theme;
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")].filter((part) => !part.closest("#glitch-section, #settings-section"));
    for (const part of closed) part.open = true;
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    drawAll();
  });
  addEventListener("afterprint", () => {
    for (const part of closed) part.open = false;
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    drawAll();
  });
})();
