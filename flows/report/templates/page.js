// Draws the charts, filters the rows, opens their details. Nothing is fetched.
"use strict";

(function drawCharts() {
  const holder = document.getElementById("specs");
  if (!holder || !window.vegaEmbed) return;
  const specs = JSON.parse(holder.textContent);
  const tip = document.body.appendChild(Object.assign(document.createElement("div"), { className: "tip", hidden: true }));

  function showTip(_handler, event, _item, value) {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.replaceChildren();
    for (const [name, said] of Object.entries(typeof value === "object" ? value : { "": value })) {
      if (said === null || said === undefined || said === "null" || said === "undefined" || said === "NaN") continue;
      const line = tip.appendChild(document.createElement("div"));
      line.appendChild(document.createElement("b")).textContent = name.replaceAll("_", " ") + " ";
      line.append(typeof said === "number" ? said.toLocaleString("en") : said);
    }
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
  }

  for (const place of document.querySelectorAll("[data-chart]")) {
    vegaEmbed(place, specs[place.dataset.chart], { mode: "vega-lite", renderer: "svg", actions: false, tooltip: showTip })
      .catch((error) => { place.textContent = "This chart could not be drawn: " + error.message; });
  }
})();

(function filterRows() {
  const form = document.querySelector(".filters");
  if (!form) return;
  form.hidden = false;
  const rows = [...document.querySelectorAll("tr.row")];
  const texts = rows.map((row) => (row.textContent + " " + row.nextElementSibling.querySelector(".id").textContent).toLowerCase());
  const shown = form.querySelector(".shown");

  function apply() {
    const words = form.querySelector("[type=search]").value.toLowerCase().split(/\s+/).filter(Boolean);
    const standings = new Set([...form.querySelectorAll("[type=checkbox]:checked")].map((box) => box.value));
    const known = new Set([...form.querySelectorAll("[type=checkbox]")].map((box) => box.value));
    const chosen = [...form.querySelectorAll("select")].filter((list) => list.value);
    let count = 0;
    rows.forEach((row, at) => {
      const isKept =
        (standings.has(row.dataset.standing) || !known.has(row.dataset.standing)) &&
        chosen.every((list) => row.dataset[list.dataset.key] === list.value) &&
        words.every((word) => texts[at].includes(word));
      row.hidden = !isKept;
      row.nextElementSibling.hidden = !isKept || row.getAttribute("aria-expanded") !== "true";
      count += isKept;
    });
    shown.textContent = count === rows.length ? `${count} rows` : `${count} of ${rows.length} rows`;
  }

  function toggle(row) {
    const isOpen = row.getAttribute("aria-expanded") === "true";
    row.setAttribute("aria-expanded", String(!isOpen));
    row.nextElementSibling.hidden = isOpen;
  }

  form.addEventListener("input", apply);
  for (const row of rows) {
    row.addEventListener("click", () => { if (!String(window.getSelection())) toggle(row); });
    row.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(row); }
    });
  }
  apply();
})();
