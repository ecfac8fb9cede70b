"use strict";
for (const head of document.querySelectorAll("th")) {
  head.tabIndex = 0;
  head.title = "sort";
  const sort = () => {
    const body = head.closest("table").tBodies[0], at = head.cellIndex, up = head.ariaSort !== "ascending";
    const key = (row) => {
      const cell = row.cells[at].textContent.replaceAll(",", ""), value = parseFloat(cell);
      return head.classList.contains("text") || Number.isNaN(value) ? cell : value;
    };
    for (const other of head.parentNode.cells) other.ariaSort = null;
    head.ariaSort = up ? "ascending" : "descending";
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    body.append(...[...body.rows].sort((a, b) => (up ? 1 : -1) * compare(key(a), key(b))));
  };
  head.addEventListener("click", sort);
  head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
}
const tip = document.body.appendChild(document.createElement("div"));
tip.className = "tip";
tip.hidden = true;
const shown = (value) => (Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3))).toLocaleString("en");
for (const plot of document.querySelectorAll("[data-hover]")) {
  const panels = JSON.parse(plot.dataset.hover);
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const across = (event.clientX - box.left) / box.width, down = (event.clientY - box.top) / box.height;
    const panel = panels.find((p) => down >= p.box[1] && down <= p.box[3] && across >= p.box[0] && across <= p.box[2]);
    tip.hidden = !panel;
    if (!panel) return;
    const part = (across - panel.box[0]) / (panel.box[2] - panel.box[0]);
    const [low, high] = panel.x, wanted = panel.log ? low * (high / low) ** part : low + part * (high - low);
    let nearest = null;
    for (const line of panel.lines) for (const x of line.x)
      if (nearest === null || Math.abs(x - wanted) < Math.abs(nearest - wanted)) nearest = x;
    const rows = panel.lines.map((line) => [line.name, line.y[line.x.indexOf(nearest)]]).filter((row) => row[1] != null);
    tip.textContent = [`${panel.label} ${shown(nearest / panel.factor)}`, ...rows.map((row) => `${row[0]}  ${shown(row[1])}`)].join("\n");
    tip.style.left = `${Math.min(event.pageX + 14, scrollX + innerWidth - 190)}px`;
    tip.style.top = `${event.pageY + 14}px`;
  });
  plot.addEventListener("pointerleave", () => { tip.hidden = true; });
}
const data = document.getElementById("report-data"), button = document.getElementById("download");
button.hidden = false;
button.addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data.textContent], {type: "application/json"}));
  link.download = "report.json";
  link.click();
});
addEventListener("beforeprint", () => { for (const each of document.querySelectorAll("details")) each.open = true; });
