"use strict";
// Light and dark; the map's zoom; numbers by arrow keys and by touch; tables that sort.
(() => {
  const root = document.documentElement;
  const finite = (v) => typeof v === "number";

  // --- light and dark -------------------------------------------------------------------

  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const button = document.getElementById("theme");
  function told() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(isDark()));
    button.setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    told();
  });
  system.addEventListener("change", told);
  told();

  // --- charts: a mark's title, as hovering shows it, by arrow keys and by touch -------------

  const tip = document.getElementById("tip");
  function show(mark) {
    for (const other of document.querySelectorAll(".on")) other.classList.remove("on");
    tip.hidden = !mark;
    if (!mark) return;
    mark.classList.add("on");
    tip.textContent = mark.querySelector("title").textContent;
    const box = mark.getBoundingClientRect(), edge = root.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(edge, box.right + 8)) + window.scrollX}px`;
    tip.style.top = `${box.bottom + 8 + window.scrollY}px`;
  }
  for (const chart of document.querySelectorAll("svg.chart")) {
    let at = -1;
    chart.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") show();
      const marks = move ? chart.querySelectorAll("title") : [];
      if (!marks.length) return;
      event.preventDefault();
      at = Math.min(marks.length - 1, Math.max(0, at + move));
      show(marks[at].parentElement);
    });
    chart.addEventListener("click", (event) => show(event.target.closest(":has(> title)")));
    chart.addEventListener("blur", () => show());
  }
  for (const pick of document.querySelectorAll("select[data-of]")) {
    const drawn = document.querySelectorAll(`[data-in="${pick.dataset.of}"]`);
    const choose = () => drawn.forEach((one, k) => { one.hidden = k !== pick.selectedIndex; });
    pick.addEventListener("change", choose);
    choose();
  }

  // --- the map: wheel, drag and buttons change what is seen of it -----------------------------

  const map = document.getElementById("map");
  if (map) {
    const whole = map.viewBox.baseVal, all = [whole.x, whole.y, whole.width, whole.height];
    let [x, y, width, height] = all;
    const look = () => {
      x = Math.max(0, Math.min(all[2] - width, x));
      y = Math.max(0, Math.min(all[3] - height, y));
      map.setAttribute("viewBox", [x, y, width, height].join(" "));
      map.style.setProperty("--part", width / all[2]);
      map.style.touchAction = width < all[2] ? "none" : "";
      show();
    };
    const zoom = (by, across = 0.5, down = 0.5) => {
      const part = Math.min(all[2], Math.max(all[2] / 200, width * by)) / width;
      x += width * across * (1 - part);
      y += height * down * (1 - part);
      width *= part;
      height *= part;
      look();
    };
    for (const press of document.querySelectorAll("button[data-zoom]")) {
      press.addEventListener("click", () => zoom(Number(press.dataset.zoom) || Infinity));
    }
    map.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const box = map.getBoundingClientRect();
      zoom(1.002 ** event.deltaY, (event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    }, { passive: false });
    map.addEventListener("pointermove", (event) => {
      if (!event.buttons || event.pointerType === "touch" && width === all[2]) return;
      const box = map.getBoundingClientRect();
      x -= event.movementX * width / box.width;
      y -= event.movementY * height / box.height;
      look();
    });
  }

  // --- tables ---------------------------------------------------------------------------

  function order(a, b) {
    if (finite(a) && finite(b)) return a - b;
    if (finite(a) !== finite(b)) return finite(a) ? -1 : 1;
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  }
  function heads(row, sort) {
    row.querySelectorAll("button").forEach((head, k) => head.addEventListener("click", () => {
      const cell = head.parentElement;
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of row.children) other.setAttribute("aria-sort", "none");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(k, down ? -1 : 1);
    }));
  }
  for (const element of document.querySelectorAll("table.sortable")) {
    const body = element.tBodies[0];
    heads(element.tHead.rows[0], (k, sign) => {
      const value = (row) => {
        const said = (row.cells[k] || row.cells[row.cells.length - 1]).textContent;
        return said.trim() !== "" && Number.isFinite(Number(said)) ? Number(said) : said;
      };
      body.append(...[...body.rows].sort((a, b) => sign * order(value(a), value(b))));
    });
  }
  root.dataset.ready = "1";
})();
