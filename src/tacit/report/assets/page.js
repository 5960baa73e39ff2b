"use strict";
// Charts by ECharts out of the page's tables; tables that sort; light and dark; print.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const charts = new Map();
  const ZONES = ["#3b7dbf", "#d98324", "#3f9b6c", "#b2558f", "#7a6bc4", "#8a8f2a",
    "#c2554d", "#2f9aa0", "#a0723f", "#5b74a8", "#c76fa8", "#6d9a3c"];
  const LOADING = data.loadings;
  const ICONS = { lines: "path://M0,4h24v2h-24z", "cut lines": "path://M0,4h6v2h-6zM9,4h6v2h-6zM18,4h6v2h-6z", "AC check: beyond limit": "path://M0,2h24v6h-24z" };

  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const column = (table, name) => table.values[table.columns.indexOf(name)];
  const finite = (v) => typeof v === "number";

  function short(v) {
    if (!finite(v)) return v === null || v === undefined ? "–" : String(v);
    if (v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e6)) return v.toExponential(3).replace("e+", "e");
    return String(Number(v.toPrecision(5)));
  }
  const tick = (v) => (v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e5)) ? v.toExponential(0).replace("e+", "e") : String(Number(v.toPrecision(6)));
  // text, whatever a name holds: nothing of it is markup
  const safe = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const lines = (head, pairs) => `<strong>${safe(head)}</strong>` +
    pairs.map(([k, v]) => `<br>${safe(k)}: ${safe(short(v))}`).join("");

  // --- light and dark -------------------------------------------------------------------

  function theme(dark) {
    const ink = dark ? "#e6eaf0" : "#1c2430", soft = dark ? "#a5b0be" : "#55606e";
    const rule = dark ? "#313a46" : "#e4e8ed", card = dark ? "#1a2029" : "#ffffff";
    const axis = {
      axisLine: { lineStyle: { color: soft } }, axisTick: { lineStyle: { color: soft } },
      axisLabel: { color: soft }, nameTextStyle: { color: soft },
      splitLine: { lineStyle: { color: rule } }, minorSplitLine: { show: false },
    };
    return {
      color: [dark ? "#7db8e8" : "#1f5f8b"], backgroundColor: "transparent",
      textStyle: { color: ink, fontFamily: getComputedStyle(document.body).fontFamily },
      valueAxis: axis, logAxis: axis, categoryAxis: axis,
      legend: { textStyle: { color: ink }, inactiveColor: soft },
      gauge: { title: { color: soft }, detail: { color: ink }, axisLabel: { color: soft } },
      tooltip: { backgroundColor: card, borderColor: soft, textStyle: { color: ink } },
    };
  }
  echarts.registerTheme("light", theme(false));
  echarts.registerTheme("dark", theme(true));

  const button = document.getElementById("theme");
  function told() {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(isDark()));
    button.setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
  }
  function repaint(dark = isDark()) {
    told();
    for (const { chart } of charts.values()) chart.setTheme(dark ? "dark" : "light");
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    repaint();
  });
  system.addEventListener("change", () => repaint());
  told();

  // --- charts ---------------------------------------------------------------------------

  const tooltip = { confine: true, transitionDuration: 0 };
  const zoomed = (axis) => ({
    type: "inside", [axis]: 0, filterMode: "none", zoomOnMouseWheel: "ctrl",
    moveOnMouseMove: true, moveOnMouseWheel: false, preventDefaultMouseMove: false,
  });

  function draw(id, option, points) {
    const box = document.getElementById(id);
    const chart = echarts.init(box, isDark() ? "dark" : "light", { renderer: "canvas" });
    chart.setOption({ animation: false, aria: { enabled: true, label: { description: box.getAttribute("aria-label") } }, ...option });
    charts.set(id, { chart, box, points });
    if (points) steps(id);
    return chart;
  }

  // arrow keys go from point to point, as hovering does
  function steps(id) {
    const { chart, box, points } = charts.get(id);
    let at = -1;
    box.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") chart.dispatchAction({ type: "hideTip" });
      if (move === undefined) return;
      event.preventDefault();
      chart.dispatchAction({ type: "downplay" });
      at = Math.min(points.length - 1, Math.max(0, at + move));
      const { value, ...point } = points[at];
      chart.dispatchAction({ type: "highlight", ...point });
      const place = value && chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, value);
      chart.dispatchAction({ type: "showTip", ...point, position: place && place.map((v) => v + 14) });
    });
    box.addEventListener("blur", () => chart.dispatchAction({ type: "hideTip" }));
  }

  function curve(spec) {
    const table = data.tables[spec.table];
    const x = column(table, spec.x), y = column(table, spec.y);
    const values = x.map((v, i) => [v, finite(y[i]) && (!spec.log || y[i] > 0) ? y[i] : null]);
    draw(spec.id, {
      grid: { left: 8, right: 14, top: 12, bottom: 4 },
      xAxis: { type: "value", name: "round", nameLocation: "middle", nameGap: 24, min: "dataMin", max: "dataMax", minInterval: 1, splitLine: { show: false } },
      yAxis: { type: spec.log ? "log" : "value", scale: true, axisLabel: { formatter: tick } },
      tooltip: { ...tooltip, trigger: "axis", formatter: ([p]) => p ? lines(`round ${p.value[0]}`, [[spec.title, p.value[1]]]) : "" },
      dataZoom: [zoomed("xAxisIndex")],
      series: [{ type: "line", data: values, showSymbol: values.length <= 40, symbolSize: 5, lineStyle: { width: 2 }, sampling: values.length > 3000 ? "lttb" : undefined }],
    }, values.map((_, i) => ({ seriesIndex: 0, dataIndex: i })));
  }

  function bars(spec) {
    const table = data.tables[spec.table];
    const labels = column(table, spec.label);
    const option = (name) => {
      const values = column(table, name);
      const order = labels.map((_, i) => i).filter((i) => finite(values[i]));
      order.sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
      const shown = order.slice(0, 20);
      if (spec.id === "solution") shown.sort((a, b) => a - b);
      return {
        grid: { left: 8, right: 20, top: 4, bottom: 4 },
        xAxis: { type: "value", axisLabel: { formatter: tick, hideOverlap: true } },
        yAxis: { type: "category", inverse: true, data: shown.map((i) => String(labels[i])), axisLabel: { width: 140, overflow: "truncate", interval: 0 }, axisTick: { show: false } },
        tooltip: { ...tooltip, trigger: "item", formatter: (p) => lines(p.name, [[name, p.value]]) },
        series: [{ type: "bar", barMaxWidth: 18, data: shown.map((i) => values[i]) }],
      };
    };
    const first = option(spec.columns[0]);
    const rows = first.series[0].data.length;
    if (rows < 15) document.getElementById(spec.id).style.height = `${60 + 26 * rows}px`;
    const chart = draw(spec.id, first, first.series[0].data.map((_, i) => ({ seriesIndex: 0, dataIndex: i })));
    const pick = document.querySelector(`select[data-of="${spec.id}"]`);
    if (pick) pick.addEventListener("change", () => chart.setOption(option(spec.columns[pick.selectedIndex])));
  }

  function gauge(spec) {
    const share = spec.budget > 0 ? spec.spent / spec.budget : 0;
    draw("gauge", {
      series: [{
        type: "gauge", startAngle: 200, endAngle: -20, min: 0, max: spec.budget, radius: "100%", center: ["50%", "62%"],
        progress: { show: true, width: 14, itemStyle: { color: !spec.ledgers ? "#3b7dbf" : share > 0.9 ? "#c0392b" : share > 0.6 ? "#c98a1b" : "#3f9b6c" } },
        axisLine: { lineStyle: { width: 14, color: [[1, "rgba(128,140,155,.28)"]] } },
        axisTick: { show: false }, splitLine: { show: false }, pointer: { show: false },
        axisLabel: { show: true, distance: -26, formatter: (v) => (v === 0 || v === spec.budget ? short(v) : "") },
        title: { show: true, offsetCenter: [0, "34%"], fontSize: 13, width: 150, overflow: "truncate" },
        detail: { valueAnimation: false, formatter: () => `ε ${spec.said}`, fontSize: 22, offsetCenter: [0, 0] },
        data: [{ value: spec.spent, name: spec.title }],
      }],
    });
  }

  function map(spec) {
    const bus = data.tables.bus, line = data.tables.line;
    const numbers = column(bus, "bus"), zone = column(bus, "zone") || [];
    const at = new Map(numbers.map((n, i) => [n, i]));
    const shed = column(bus, "p_shed"), q = column(bus, "q_shed");
    const size = numbers.map((_, i) => shed && finite(shed[i]) ? Math.hypot(shed[i], q && finite(q[i]) ? q[i] : 0) : 0);
    const most = Math.max(1e-2, ...size.length < 1e5 ? size : [1]);
    const box = document.getElementById("map");
    const room = Math.sqrt(box.clientWidth * box.clientHeight / Math.max(1, numbers.length)); // of a bus
    const least = Math.max(2.5, Math.min(13, 0.16 * room)), large = numbers.length > 2000;
    const many = spec.zones.length > ZONES.length;
    const colour = new Map(spec.zones.map((name, k) => [name, many ? `hsl(${(k * 137.5) % 360},52%,52%)` : ZONES[k]]));
    const row = (table, i) => table.heads.map((head, k) => [head, table.values[k][i]]).filter((_, k) => k > 0);
    const dot = (i) => ({ value: [spec.x[i], spec.y[i]], row: i, name: String(numbers[i]), symbolSize: least * (1 + 1.6 * size[i] / most) });
    const ends = column(line, "from_bus"), tails = column(line, "to_bus"), cut = column(line, "cut");
    const flow = column(line, "p_from"), loading = column(line, "loading");
    const widest = Math.max(1e-9, ...(flow || []).filter(finite).map(Math.abs));
    const stroke = (i) => {
      const share = loading && finite(loading[i]) ? loading[i] : 0;
      return {
        color: LOADING[share > 1 ? 4 : share > 0.8 ? 3 : share > 0.5 ? 2 : share > 0.2 ? 1 : 0],
        width: large ? 0.7 : 0.8 + 4 * (flow && finite(flow[i]) ? Math.abs(flow[i]) / widest : 0.2),
        type: cut && cut[i] === "yes" ? "dashed" : "solid", opacity: 0.9,
      };
    };
    const drawn = ends.map((_, i) => i).filter((i) => at.has(ends[i]) && at.has(tails[i]));
    const path = (i) => {
      const a = at.get(ends[i]), b = at.get(tails[i]);
      return { coords: [[spec.x[a], spec.y[a]], [spec.x[b], spec.y[b]]], row: i, lineStyle: stroke(i) };
    };
    const about = (table, name) => (p) => lines(`${name} ${table.values[0][p.data.row]}`, row(table, p.data.row));
    const lined = (name, rows, more = {}) => ({
      name, type: "lines", coordinateSystem: "cartesian2d", polyline: false, z: 1, clip: true,
      progressive: large ? 2000 : 0, progressiveThreshold: 4000, symbol: "none",
      data: rows.map(path), tooltip: { formatter: about(line, "line") }, ...more,
    });
    const isCut = (i) => cut && cut[i] === "yes";
    const series = [
      lined("lines", drawn.filter((i) => !isCut(i)), { color: LOADING[0] }),
      lined("cut lines", drawn.filter(isCut), { color: LOADING[0], lineStyle: { type: "dashed", width: 2 } }),
    ];
    const overloads = new Set(spec.overloads), beyond = drawn.filter((i) => overloads.has(line.values[0][i]));
    if (beyond.length) series.push(lined("AC check: beyond limit", beyond, { data: beyond.map((i) => ({ ...path(i), lineStyle: { color: "#e0301e", width: 5, opacity: 0.55 } })) }));
    const points = [];
    const names = spec.zones.length ? spec.zones : [""];
    const rows = new Map(names.map((name) => [name, []]));
    numbers.forEach((_, i) => rows.get(zone.length ? zone[i] : "").push(i));
    for (const name of names) {
      const seriesIndex = series.length;
      rows.get(name).forEach((i, k) => points.push({ seriesIndex, dataIndex: k, value: [spec.x[i], spec.y[i]] }));
      series.push({
        name: String(name || "buses"), type: "scatter", z: 3, data: rows.get(name).map(dot), itemStyle: { color: colour.get(name), borderColor: "rgba(10,14,20,.65)", borderWidth: large ? 0 : 1 },
        label: room > 40 && numbers.length <= 400 ? { show: true, formatter: (p) => p.name, fontSize: 11, position: "top", distance: 3, color: isDark() ? "#e6eaf0" : "#1c2430" } : undefined,
        labelLayout: { hideOverlap: true }, progressive: large ? 3000 : 0, tooltip: { formatter: about(bus, "bus") },
      });
    }
    const low = new Set(spec.voltages), off = numbers.map((_, i) => i).filter((i) => low.has(numbers[i]));
    if (off.length) series.push({ name: "AC check: voltage", type: "scatter", z: 2, silent: true, data: off.map((i) => ({ ...dot(i), symbolSize: 2.2 * least })), itemStyle: { color: "transparent", borderColor: "#e0301e", borderWidth: 3 }, label: { show: false } });
    const hidden = { show: false, scale: true };
    draw("map", {
      grid: { left: 10, right: 10, top: many ? 10 : 56, bottom: 10 },
      xAxis: { ...hidden }, yAxis: { ...hidden },
      legend: many ? { show: false } : {
        top: 0, left: 0, itemGap: 10, itemHeight: 10, itemWidth: 20,
        data: series.map(({ name }) => ({ name, icon: ICONS[name] || "circle" })),
      },
      tooltip: { ...tooltip, trigger: "item" },
      dataZoom: [zoomed("xAxisIndex"), zoomed("yAxisIndex")],
      series,
    }, points);
  }

  for (const spec of data.charts) ({ line: curve, bars })[spec.kind](spec);
  if (data.map) map(data.map);
  if (data.gauge) gauge(data.gauge);

  document.addEventListener("click", (event) => {
    const pressed = event.target.closest("button[data-zoom]");
    if (!pressed) return;
    const { chart } = charts.get(pressed.dataset.of);
    chart.getOption().dataZoom.forEach((zoom, dataZoomIndex) => {
      const middle = (zoom.start + zoom.end) / 2, half = (zoom.end - zoom.start) / 2;
      const next = { in: half / 1.6, out: Math.min(50, half * 1.6), all: 50 }[pressed.dataset.zoom];
      const start = Math.max(0, Math.min(100 - 2 * next, middle - next));
      chart.dispatchAction({ type: "dataZoom", dataZoomIndex, start, end: start + 2 * next });
    });
  });

  // --- sizes, and the printed page -------------------------------------------------------

  let printing = false;
  const watch = new ResizeObserver((seen) => {
    if (!printing) for (const { target } of seen) charts.get(target.id)?.chart.resize();
  });
  for (const { box } of charts.values()) watch.observe(box);
  const PRINTED = { map: [650, 440], gauge: [150, 130], coefficients: [650, 320], solution: [650, 320] };
  window.addEventListener("beforeprint", () => {
    printing = true;
    for (const [id, { chart, box }] of charts) {
      const [width, height] = PRINTED[id] || [298, 170];
      chart.setTheme("light");
      chart.resize({ width, height });
      chart.dispatchAction({ type: "hideTip" });
      // one canvas, drawn at once: paper neither waits for a frame nor lays layers on one another
      const paper = chart.renderToCanvas({ pixelRatio: 2 });
      paper.className = "paper";
      paper.removeAttribute("style");
      box.append(paper);
    }
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    for (const paper of document.querySelectorAll("canvas.paper")) paper.remove();
    for (const { chart } of charts.values()) chart.resize({ width: "auto", height: "auto" });
    repaint();
  });

  // --- tables ---------------------------------------------------------------------------

  const FIRST = 100;
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
  function fill(element) {
    const table = data.tables[element.dataset.table];
    const text = table.values.map((values) => values.length > 0 && !values.some(finite));
    const head = element.createTHead().insertRow(), body = element.createTBody();
    table.heads.forEach((name) => {
      const cell = document.createElement("th"), press = document.createElement("button");
      cell.scope = "col";
      cell.setAttribute("aria-sort", "none");
      press.type = "button";
      press.textContent = name;
      cell.append(press);
      head.append(cell);
    });
    let rows = table.values[0].map((_, i) => i), shown = FIRST;
    const more = element.closest("details").querySelector(".more");
    function show() {
      const part = document.createDocumentFragment();
      for (const i of rows.slice(0, shown)) {
        const row = document.createElement("tr");
        table.values.forEach((values, k) => {
          const cell = document.createElement("td");
          cell.textContent = short(values[i]);
          if (text[k]) cell.className = "text";
          row.append(cell);
        });
        part.append(row);
      }
      body.replaceChildren(part);
      more.replaceChildren();
      const left = rows.length - shown;
      if (left > 0) {
        const press = document.createElement("button");
        press.type = "button";
        press.textContent = `Show ${Math.min(left, 1000)} more of ${left}`;
        press.addEventListener("click", () => { shown += 1000; show(); });
        more.append(press);
      } else if (table.rows > rows.length) more.textContent = `The first ${rows.length} of ${table.rows} rows are on this page.`;
    }
    heads(head, (k, sign) => {
      rows = [...rows].sort((a, b) => sign * order(table.values[k][a], table.values[k][b]));
      show();
    });
    show();
  }
  for (const element of document.querySelectorAll("table[data-table]")) {
    const fold = element.closest("details");
    const once = () => { if (fold.open && !element.tHead) fill(element); };
    fold.addEventListener("toggle", once);
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
