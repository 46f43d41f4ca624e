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
};

// Plotly reads some HTML in the texts it shows, and these come from files.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const translucent = (colour) => `${colour}26`;

function bytes(number) {
  const power = number < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(number) / 3));
  return `${Number((number / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

const scoreText = (metric, y) => (metric.log_scale ? y.toExponential(1) : y.toFixed(3));

function hoverText(metric, curve, i) {
  const spread = curve.spread && curve.seeds[i] > 1 ? ` ± ${scoreText(metric, curve.spread[i])}` : "";
  const seeds = curve.spread ? `<br>${curve.seeds[i]} of ${curve.of} seeds` : "";
  const cost = [
    `round ${curve.x.round[i]}`,
    bytes(curve.x.bytes_up[i]),
    `${curve.x.gradient_evaluations[i].toLocaleString("en")} gradients`,
    `${curve.x.seconds[i]} s`,
  ];
  if (curve.x.simulated_seconds) cost.push(`${curve.x.simulated_seconds[i]} s simulated`);
  const score = `${metric.name} ${scoreText(metric, curve.y[i])}${spread}`;
  return `<b>${plain(curve.name)}</b><br>${score}<br>${cost.join(" · ")}${seeds}`;
}

function traces(section, key) {
  return section.curves.flatMap((curve, number) => {
    const x = curve.x[key];
    const shown = { visible: curve.hidden ? false : true, meta: number };
    const line = {
      ...shown, x, y: curve.y, type: "scatter", mode: x.length === 1 ? "markers" : "lines", name: plain(curve.name),
      line: { color: curve.colour, width: 2, dash: curve.dash }, marker: { color: curve.colour },
      text: curve.y.map((_, i) => hoverText(section.metric, curve, i)), hovertemplate: "%{text}<extra></extra>",
    };
    if (!curve.spread) return [line];
    const band = {
      ...shown, type: "scatter", mode: "lines", hoverinfo: "skip", fill: "toself", line: { width: 0 },
      fillcolor: translucent(curve.colour), x: [...x, ...x.toReversed()],
      y: [
        ...curve.y.map((y, i) => Math.min(section.metric.highest ?? Infinity, y + curve.spread[i])),
        ...curve.y.map((y, i) => Math.max(0, y - curve.spread[i])).toReversed(),
      ],
    };
    return [band, line];
  });
}

// A method with many times the rounds of the others, as FedSGD has, would leave them no room.
function end(section, key) {
  const shown = section.curves.filter((curve) => !curve.hidden);
  const others = shown.filter((curve) => curve !== section.curves[section.longest]);
  return Math.max(...(others.length ? others : shown).map((curve) => curve.x[key].at(-1) ?? 0), 0);
}

function layout(section, key) {
  const [text, grid] = [css("--text"), css("--line")];
  const axis = { gridcolor: grid, linecolor: grid, zeroline: false, color: text, automargin: true };
  const { target, metric } = section;
  const place = metric.log_scale && target !== null ? Math.log10(target) : target; // of a text on an axis of powers of ten
  return {
    showlegend: false, hovermode: "closest", dragmode: coarse.matches ? false : "zoom",
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: "inherit", size: 13, color: text },
    margin: { l: 56, r: 12, t: 30, b: 46 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--quiet"), activecolor: text },
    hoverlabel: { bgcolor: css("--raised"), bordercolor: grid, font: { color: text }, align: "left" },
    xaxis: {
      ...axis, title: { text: AXES[key].title }, tickformat: AXES[key].format,
      ticksuffix: AXES[key].suffix || "", range: [0, 1.02 * end(section, key)], nticks: 7,
    },
    yaxis: {
      ...axis, title: { text: metric.title }, type: metric.log_scale ? "log" : "linear",
      exponentformat: metric.log_scale ? "power" : "B",
    },
    shapes: target === null ? [] : [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target,
      line: { color: css("--quiet"), width: 1, dash: "dot" },
    }],
    annotations: target === null ? [] : [{
      text: `target ${target}`, xref: "paper", x: 0, xanchor: "left", y: place, yanchor: "bottom",
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
  const chosen = () => element.querySelector(".axis input:checked").value;
  let drawn = false;

  const draw = () => {
    Plotly.react(plot, traces(section, chosen()), layout(section, chosen()), CONFIG);
    if (!drawn) plot.on("plotly_click", (event) => showExperiment(section.curves[event.points[0].data.meta]));
    drawn = true;
  };
  const redraw = () => { if (drawn) draw(); };
  const toggle = () => {
    boxes.forEach((box, number) => { section.curves[number].hidden = !box.checked; });
    redraw();
  };

  element.querySelectorAll(".axis input").forEach((radio) => radio.addEventListener("change", redraw));
  boxes.forEach((box) => box.addEventListener("change", toggle));
  element.querySelectorAll("[data-show]").forEach((button) => button.addEventListener("click", () => {
    boxes.forEach((box) => { box.checked = button.dataset.show === "all"; });
    toggle();
  }));
  element.querySelectorAll("[data-curve]").forEach((button) =>
    button.addEventListener("click", () => showExperiment(section.curves[button.dataset.curve])));
  dark.addEventListener("change", redraw);
  toggle(); // a browser may remember what was unchecked before a reload

  // A plot is drawn when it comes near the screen, so that a long report opens at once.
  const observer = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) {
      observer.disconnect();
      draw();
    }
  }, { rootMargin: "400px" });
  observer.observe(plot);
}

document.querySelectorAll("[data-section]").forEach(begin);
