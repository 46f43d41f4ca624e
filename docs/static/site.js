// Draws the curves of a page with Plotly, in the colours of the page, and again when these change.
(() => {
  "use strict";
  const dark = () => {
    const theme = document.body.dataset.theme;
    return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  };

  const layout = (figure, width) => {
    const ink = dark() ? "#ced2d6" : "#1c1e21";
    const grid = dark() ? "#3a3f44" : "#e1e4e8";
    const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true, fixedrange: true };
    return {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "inherit", size: 13 },
      height: width < 500 ? 400 : 360,
      margin: { l: 56, r: 12, t: 12, b: 64 },
      hovermode: "x unified",
      hoverlabel: { bgcolor: dark() ? "#1a1c1e" : "#ffffff", font: { color: ink } },
      legend: { orientation: "h", y: -0.28, x: 0 },
      xaxis: { ...axis, title: { text: figure.x } },
      yaxis: { ...axis, title: { text: figure.y }, type: figure.log ? "log" : "linear", exponentformat: "power", dtick: figure.log ? 1 : undefined },
    };
  };

  const draw = (place) => {
    const figure = JSON.parse(place.querySelector("script").textContent);
    let plot = place.querySelector(".plot");
    if (!plot) {
      plot = document.createElement("div");
      plot.className = "plot";
      place.append(plot);
    }
    Plotly.react(plot, figure.data, layout(figure, place.clientWidth), { responsive: true, displayModeBar: false });
  };

  addEventListener("DOMContentLoaded", () => {
    const places = [...document.querySelectorAll(".curves")];
    if (!places.length) return;
    const script = document.createElement("script");
    script.src = `${document.documentElement.dataset.content_root}_static/plotly.min.js`;
    script.onload = () => {
      const all = () => places.forEach(draw);
      all();
      new MutationObserver(all).observe(document.body, { attributes: true, attributeFilter: ["data-theme"] });
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
    };
    document.head.append(script);
  });
})();
