"use strict";

const sections = JSON.parse(document.getElementById("report-data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const coarse = window.matchMedia("(pointer: coarse)");
const AXES = {
  round: { title: "rounds", format: "" },
  bytes_up: { title: "bytes uploaded", format: "~s", suffix: "B" },
  gradient_evaluations: { title: "gradient evaluations", format: "~s" },
  seconds: { title: "seconds", format: "" },
  simulated_seconds: { title: "simulated seconds", format: "" },
  clients: { title: "share of the clients, from the worst on", format: "", suffix: " %" },
};

// Plotly reads some HTML in the texts it shows, and these come from files.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
// A variable holds light-dark(): only a colour that is used is one of the two.
const probe = document.createElement("i");
document.head.append(probe);
const css = (name) => {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
};
const translucent = (colour) => `${colour}26`;

function bytes(number) {
  const power = number < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(number) / 3));
  return `${Number((number / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

const number = (value, metric) =>
  metric.style === "f" ? value.toFixed(metric.digits)
    : metric.style === "e" ? value.toExponential(metric.digits) : `${Number(value.toPrecision(metric.digits))}`;

// The points of a curve: where they are, their score, its spread, and how many seeds stand behind each.
function pointsOf(curve, { metric, axis }) {
  if (axis === "clients") {
    const found = curve.clients[metric];
    if (!found) return [];
    const step = 100 / (found.y.length - 1);
    return found.y.map((y, i) => ({ x: i * step, y, spread: curve.of > 1 ? found.spread[i] : null, seeds: curve.of }));
  }
  const found = curve.y[metric];
  if (!found) return [];
  return found.y.map((y, i) => {
    const row = found.rounds ? found.rounds[i] - 1 : i;
    return { x: curve.x[axis][row], y, spread: found.spread?.[i] ?? null, seeds: found.seeds?.[i] ?? 1, row };
  });
}

function hoverText(section, curve, point, state) {
  const metric = section.metrics[state.metric];
  const spread = point.spread !== null && point.seeds > 1 ? ` ± ${number(point.spread, metric)}` : "";
  const score = `${plain(state.metric)} ${number(point.y, metric)}${spread}`;
  const seeds = curve.of > 1 ? `<br>${point.seeds} of ${curve.of} seeds` : "";
  if (state.axis === "clients") {
    return `<b>${plain(curve.name)}</b><br>${score}<br>${Math.round(point.x)} % of the clients do worse${seeds}`;
  }
  const { x } = curve;
  const cost = [
    `round ${x.round[point.row]}`,
    bytes(x.bytes_up[point.row]),
    `${x.gradient_evaluations[point.row].toLocaleString("en")} gradients`,
    `${x.seconds[point.row]} s`,
  ];
  if (x.simulated_seconds) cost.push(`${x.simulated_seconds[point.row]} s simulated`);
  return `<b>${plain(curve.name)}</b><br>${score}<br>${cost.join(" · ")}${seeds}`;
}

// On the logarithmic scale a score that has a ceiling is drawn as its error, how far it is below that.
function scaleOf(section, state) {
  const metric = section.metrics[state.metric];
  const log = state.scale === "log";
  const flipped = log && metric.ceiling !== null;
  const value = flipped ? (y) => metric.ceiling - y : (y) => y;
  const all = log ? section.curves.flatMap((curve) => pointsOf(curve, state).map((point) => value(point.y))) : [];
  const floor = log ? Math.min(...all.filter((y) => y > 1e-12)) / 2 : -Infinity; // 0 has no place on this scale
  const title = flipped ? `error: ${metric.ceiling} − ${metric.title}` : metric.title;
  return { log, flipped, title, lower: flipped || metric.lower, draw: (y) => Math.max(value(y), floor) };
}

function traces(section, state, scale) {
  const metric = section.metrics[state.metric];
  return section.curves.flatMap((curve, number) => {
    const points = pointsOf(curve, state);
    const x = points.map((point) => point.x);
    const shown = { visible: curve.hidden ? false : true, meta: number };
    const line = {
      ...shown, x, y: points.map((point) => scale.draw(point.y)), type: "scatter",
      mode: x.length === 1 ? "markers" : "lines", name: plain(curve.name),
      line: { color: curve.colour, width: 2, dash: curve.dash }, marker: { color: curve.colour },
      text: points.map((point) => hoverText(section, curve, point, state)), hovertemplate: "%{text}<extra></extra>",
    };
    if (curve.of === 1) return [line];
    const edge = (sign) => points.map(({ y, spread }) => scale.draw(
      Math.max(metric.lowest ?? -Infinity, Math.min(metric.highest ?? Infinity, y + sign * (spread ?? 0)))));
    const band = {
      ...shown, type: "scatter", mode: "lines", hoverinfo: "skip", fill: "toself", line: { width: 0 },
      fillcolor: translucent(curve.colour), x: [...x, ...x.toReversed()], y: [...edge(1), ...edge(-1).toReversed()],
    };
    return [band, line];
  });
}

// A method with many times the rounds of the others, as FedSGD has, would leave them no room.
function end(section, state) {
  const shown = section.curves.filter((curve) => !curve.hidden);
  const others = shown.filter((curve) => curve !== section.curves[section.longest]);
  return Math.max(...(others.length ? others : shown).map((curve) => pointsOf(curve, state).at(-1)?.x ?? 0), 0);
}

function layout(section, state, scale) {
  const [text, grid] = [css("--text"), css("--line")];
  const axis = { gridcolor: grid, linecolor: grid, zeroline: false, color: text, automargin: true };
  const aimed = section.target !== null && section.metrics[state.metric].judge && state.axis !== "clients";
  const target = aimed ? scale.draw(section.target) : null;
  const place = scale.log && target !== null ? Math.log10(target) : target; // of a text on an axis of powers of ten
  const view = `${state.metric} ${scale.log} ${state.axis}`; // what is zoomed stays while curves come and go
  return {
    showlegend: false, hovermode: "closest", dragmode: coarse.matches ? false : "zoom", uirevision: view,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "inherit", size: 13, color: text },
    margin: { l: 56, r: 12, t: 30, b: 46 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--quiet"), activecolor: text },
    hoverlabel: { bgcolor: css("--raised"), bordercolor: grid, font: { color: text }, align: "left" },
    xaxis: {
      ...axis, title: { text: AXES[state.axis].title }, tickformat: AXES[state.axis].format, fixedrange: state.keepsX,
      ticksuffix: AXES[state.axis].suffix || "", range: [0, 1.02 * end(section, state)], nticks: 7,
    },
    yaxis: {
      ...axis, title: { text: plain(scale.title) }, type: scale.log ? "log" : "linear",
      exponentformat: scale.log ? "power" : "B",
    },
    shapes: target === null ? [] : [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target,
      line: { color: css("--quiet"), width: 1, dash: "dot" },
    }],
    annotations: target === null ? [] : [{
      text: `target ${section.target}`, xref: "paper", x: 0, xanchor: "left", y: place, yanchor: "bottom",
      showarrow: false, font: { color: css("--quiet"), size: 12 }, bgcolor: css("--background"), opacity: 0.85,
    }],
  };
}

const CONFIG = {
  responsive: true, displaylogo: false, displayModeBar: coarse.matches ? false : "hover",
  modeBarButtons: [["toImage", "resetScale2d"]],
};

function showExperiment(curve) {
  document.getElementById("experiment-name").textContent = curve.name;
  document.getElementById("experiment-seeds").textContent = curve.runs;
  document.getElementById("experiment-text").textContent = curve.experiment;
  document.getElementById("experiment").showModal();
}

function begin(element) {
  const section = sections[element.dataset.section];
  if (!section.curves.length) return;
  const plot = element.querySelector(".plot");
  const boxes = [...element.querySelectorAll(".methods input")];
  const metric = element.querySelector(".metric");
  const scales = [...element.querySelectorAll(".scale input")];
  const chosen = () => ({
    metric: metric.value,
    axis: element.querySelector(".axis input:checked").value,
    scale: scales.find((radio) => radio.checked).value,
    keepsX: element.querySelector(".zoom input").checked,
  });
  let drawn = false;

  const draw = () => {
    const state = chosen();
    const scale = scaleOf(section, state);
    Plotly.react(plot, traces(section, state, scale), layout(section, state, scale), CONFIG);
    if (!drawn) plot.on("plotly_click", (event) => showExperiment(section.curves[event.points[0].data.meta]));
    drawn = true;
  };
  const redraw = () => { if (drawn) draw(); };
  const toggle = () => {
    boxes.forEach((box, number) => { section.curves[number].hidden = !box.checked; });
    redraw();
  };

  // What fits a metric: its own scale at first, and the clients only where they have scores of it.
  const fit = () => {
    const { log, ceiling } = section.metrics[metric.value];
    scales[log ? 1 : 0].checked = true;
    scales[1].nextElementSibling.textContent = ceiling === null ? "log" : "error, log";
    const clients = element.querySelector(".axis input[value=clients]");
    if (clients) {
      clients.disabled = !section.curves.some((curve) => curve.clients[metric.value]);
      if (clients.checked && clients.disabled) element.querySelector(".axis input").checked = true;
    }
    redraw();
  };
  // Half of the axis is left with each press, the half at which the best scores are.
  const zoom = (inwards) => {
    const [low, high] = plot.layout.yaxis.range;
    const middle = (low + high) / 2;
    const half = scaleOf(section, chosen()).lower ? [low, middle] : [middle, high];
    Plotly.relayout(plot, inwards ? { "yaxis.range": half } : { "yaxis.autorange": true });
  };

  metric.addEventListener("change", fit);
  element.querySelectorAll(".axis input, .scale input, .zoom input").forEach((input) =>
    input.addEventListener("change", redraw));
  element.querySelectorAll("[data-zoom]").forEach((button) =>
    button.addEventListener("click", () => { if (drawn) zoom(button.dataset.zoom === "in"); }));
  boxes.forEach((box) => box.addEventListener("change", toggle));
  element.querySelectorAll("[data-show]").forEach((button) => button.addEventListener("click", () => {
    boxes.forEach((box) => { box.checked = button.dataset.show === "all"; });
    toggle();
  }));
  element.querySelectorAll("[data-curve]").forEach((button) =>
    button.addEventListener("click", () => showExperiment(section.curves[button.dataset.curve])));
  redraws.push(redraw);
  fit(); // a browser may remember what was chosen before a reload
  toggle();

  // A plot is drawn when it comes near the screen, so that a long report opens at once.
  const observer = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      observer.disconnect();
      draw();
    }
  }, { rootMargin: "400px" });
  observer.observe(plot);
}

const redraws = [];
const redrawAll = () => redraws.forEach((redraw) => redraw());
const look = document.getElementById("look");
look.addEventListener("change", () => {
  document.documentElement.style.colorScheme = look.value;
  redrawAll();
});
dark.addEventListener("change", redrawAll);
document.querySelectorAll("[data-section]").forEach(begin);
