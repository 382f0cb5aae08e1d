"use strict";
// The page: a slider over c, or one for each of several axes, and everything that follows it.
(() => {
  const all = JSON.parse(document.getElementById("content").textContent);
  const palettes = Object.fromEntries(
    Object.entries(JSON.parse(document.getElementById("colours").textContent)).map(([name, hex]) => [
      name,
      hex.match(/.{6}/g).map((s) => [0, 2, 4].map((i) => parseInt(s.slice(i, i + 2), 16))),
    ])
  );
  const get = (id) => document.getElementById(id);
  const sliders = all.axes.map((_, i) => get(i ? `c-${i}` : "c")), several = all.axes.length > 1;
  const raw = unpack(all.marginals.raw);
  const weighted = all.marginals.weighted && unpack(all.marginals.weighted);
  const ofData = all.marginals.data && unpack(all.marginals.data);
  const bins = raw.shape[2], kinds = all.quantities.length;
  const points = all.points && {
    place: unpack(all.points.place),
    radius: all.points.radius && unpack(all.points.radius),
    data: all.points.data.map(unpack),
  };
  const density = all.density && { ...all.density, model: unpack(all.density.model), target: all.density.target && unpack(all.density.target) };
  const torsions = all.torsions && Object.fromEntries(["raw", "weighted", "data"].map((n) => [n, all.torsions[n] && unpack(all.torsions[n])]));
  const fields = all.fields && { model: unpack(all.fields.model), data: all.fields.data.map(unpack) };
  const degrees = [[-180, "−180°"], [-90, "−90°"], [0, "0°"], [90, "90°"], [180, "180°"]];
  let now = all.home;

  // Conditions are numbered as the sliders count: the last one fastest.
  const sizes = all.axes.map((axis) => axis.c.length);
  const indexOf = (place) => place.reduce((index, p, i) => index * sizes[i] + p, 0);
  const placeOf = (index) => sizes.reduceRight(([rest, place], n) => [Math.floor(rest / n), [rest % n, ...place]], [index, []])[1];
  const closest = (values, v) => values.reduce((best, w, i) => (Math.abs(w - v) < Math.abs(values[best] - v) ? i : best), 0);
  const told = (c) => (several ? `(${c.map((v) => shown(v)).join(", ")})` : shown(c));

  /** The boundary value nearest in the chart: its data are shown. */
  const apart = (one, two) => [one].flat().reduce((sum, v, i) => sum + (v - [two].flat()[i]) ** 2, 0);
  const nearest = () => all.boundary.reduce((best, b, i) => (apart(b.u, all.u[now]) < apart(all.boundary[best].u, all.u[now]) ? i : best), 0);

  const heights = (from, row, k, top) => Array.from({ length: bins }, (_, b) => top * from.value((row * kinds + k) * bins + b));
  const zoomed = () => get("zoom") && get("zoom").checked;

  /** The ends of an axis: those of all conditions, or of this one and the data beside it. */
  function ends(k) {
    if (density && kinds === 2 && !zoomed()) return density.ranges[k];
    const here = [all.ranges[now][k]];
    if (all.has_data && !zoomed()) here.push(...all.data_ranges.map((r) => r[k]));
    const from = zoomed() ? here : [...all.ranges.map((r) => r[k]), ...here];
    return [Math.min(...from.map((r) => r[0])), Math.max(...from.map((r) => r[1]))];
  }
  const ticksOf = (k, [low, high], n) => (all.quantities[k].angle ? degrees.filter(([v]) => n > 3 || v % 180 === 0) : ticksBetween(low, high, n));

  function drawMarginals() {
    for (let k = 0; k < kinds; k++) {
      const canvas = get(`marginal-${k}`), x = ends(k), b = nearest();
      const own = heights(raw, now, k, all.marginals.top[now][k]);
      const better = weighted && heights(weighted, now, k, all.marginals.top[now][k]);
      const given = ofData && heights(ofData, b, k, all.marginals.data_top[b][k]);
      const top = Math.max(...own), cut = (h, most) => (h ? Math.min(Math.max(...h), most * top) : 0);
      const fine = all.weights && all.weights.usable[now];
      // A single weight, or data of another condition, may be much higher than the model: there tops are cut.
      const high = 1.06 * Math.max(top, cut(better, fine ? 4 : 1.6), cut(given, 1.6)) || 1;
      const plot = axes(canvas, { x, y: [0, high], xTicks: ticksOf(k, x, 4) });
      stairs(plot, own, all.ranges[now][k], colour("raw"), { fill: true });
      if (given) stairs(plot, given, all.data_ranges[b][k], colour("data"), { width: 1.4, dash: [4, 3] });
      if (better) stairs(plot, better, all.ranges[now][k], colour(fine ? "model" : "bad"));
    }
  }

  /** Points of one row in a pair plot; those behind have no radius of their own. */
  function scatter(canvas, place, row, ranges, layers) {
    const i = Number(get("across").value), j = Number(get("up").value), x = ends(i), y = ends(j), n = place.shape[place.shape.length - 2];
    const { ctx, X, Y, box } = axes(canvas, {
      x, y, xTicks: ticksOf(i, x, 5), yTicks: ticksOf(j, y, 5), xName: all.quantities[i].name, yName: all.quantities[j].name,
    });
    ctx.beginPath();
    ctx.rect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    ctx.clip();
    const at = (p, k) => place.whole[(row * n + p) * kinds + k], inside = (w) => w > 0 && w < place.top;
    const placed = (w, [low, high]) => low + (w / place.top) * (high - low);
    for (const { style, radius } of layers) {
      ctx.fillStyle = style;
      ctx.globalAlpha = 0.5;
      for (let p = 0; p < n; p++) {
        const r = 1.5 * (radius ? radius.value(row * n + p) : 1);
        if (!inside(at(p, i)) || !inside(at(p, j)) || r < 0.15) continue;
        ctx.beginPath();
        ctx.arc(X(placed(at(p, i), ranges[i])), Y(placed(at(p, j), ranges[j])), r, 0, 2 * Math.PI);
        ctx.fill();
      }
    }
  }

  function drawPoints() {
    const { radius } = points, heavy = radius && get("by-weight").checked, b = nearest();
    const front = { style: colour(heavy && !all.weights.usable[now] ? "bad" : "model"), radius: heavy ? radius : null };
    scatter(get("points-model"), points.place, now, all.ranges[now], heavy ? [{ style: colour("pale") }, front] : [front]);
    if (points.data.length) scatter(get("points-data"), points.data[b], 0, all.data_ranges[b], [{ style: colour("data") }]);
  }

  function drawDensity() {
    const { ranges } = density;
    if (kinds === 1) {
      const n = density.model.shape[1], xs = Array.from({ length: n }, (_, i) => ranges[0][0] + ((i + 0.5) / n) * (ranges[0][1] - ranges[0][0]));
      const curve = (of) => xs.map((_, i) => of.value(now * n + i));
      const plot = axes(get("density-model"), { x: ranges[0], y: [0, 1.05], xTicks: ticksOf(0, ranges[0], 6), xName: all.quantities[0].name });
      if (density.target) line(plot, xs, curve(density.target), colour("truth"), { width: 4 });
      line(plot, xs, curve(density.model), colour("model"));
      return;
    }
    for (const of of ["model", "target"]) {
      if (!density[of]) continue;
      const n = density[of].shape[1], base = now * n * n;
      const [x, y] = ranges;
      const plot = axes(get(`density-${of}`), { x, y, xTicks: ticksOf(0, x, 5), yTicks: ticksOf(1, y, 5), xName: all.quantities[0].name, yName: all.quantities[1].name });
      picture(plot.ctx, plot.box, n, n, (i, j) => density[of].whole[base + i * n + j] / density[of].top, palettes.density);
    }
  }

  function drawTorsions() {
    for (const of of ["raw", "weighted", "data"]) {
      if (!torsions[of]) continue;
      const n = torsions[of].shape[1], base = (of === "data" ? nearest() : now) * n * n, ring = [-180, 180];
      const [a, b] = all.torsions.names;
      const plot = axes(get(`torsions-${of}`), { x: ring, y: ring, xTicks: degrees, yTicks: degrees, xName: a, yName: b });
      picture(plot.ctx, plot.box, n, n, (i, j) => torsions[of].whole[base + i * n + j] / torsions[of].top, palettes.density, false);
    }
  }

  function drawFields() {
    const b = nearest(), sets = [["fields-model", fields.model, now]];
    if (fields.data.length) sets.push(["fields-data", fields.data[b], 0]);
    for (const [id, of, row] of sets) {
      const { ctx, width, height } = ready(get(id)), [many, rows, columns] = of.shape.slice(-3);
      const across = Math.min(many, 3), down = Math.ceil(many / across), gap = 6;
      const size = Math.min((width - gap * (across - 1)) / across, (height - gap * (down - 1)) / down);
      for (let f = 0; f < many; f++) {
        const left = (f % across) * (size + gap), top = Math.floor(f / across) * (size + gap);
        const tall = Math.min(size, Math.max((size * rows) / columns, 12)), base = (row * many + f) * rows * columns;
        picture(ctx, { left, top, right: left + size, bottom: top + tall }, columns, rows, (i, j) => of.whole[base + (rows - 1 - j) * columns + i] / of.top, palettes.field, false);
      }
    }
  }

  function drawCurves() {
    const w = all.weights, styles = w.usable.map((fine) => colour(fine ? "model" : "bad")), x = [-1.02, 1.02];
    const begin = (id, y, yTicks) => {
      const plot = axes(get(id), { x, y, xTicks: all.axes[0].ticks, yTicks, xName: "c" });
      for (const { u } of all.boundary) line(plot, [u, u], y, colour("data"), { width: 1.2, dash: [2, 3] });
      line(plot, [all.u[now], all.u[now]], y, colour("ink"), { width: 1 });
      return plot;
    };
    const end = (plot, ys) => {
      if (ys[now] === null) return;
      plot.ctx.strokeStyle = colour("ink");
      plot.ctx.lineWidth = 1.5;
      plot.ctx.beginPath();
      plot.ctx.arc(plot.X(all.u[now]), plot.Y(ys[now]), 5.5, 0, 2 * Math.PI);
      plot.ctx.stroke();
    };
    const most = Math.max(...w.ess), high = most > 0.5 ? 1 : Math.max(most * 1.15, 1e-3);
    const percents = ticksBetween(0, 100 * high, 5).map(([v, text]) => [v / 100, `${text} %`]);
    let plot = begin("curve-ess", [0, high * 1.04], percents);
    line(plot, all.u, w.ess, colour("model"), { width: 1.2 });
    marks(plot, all.u, w.ess, w.ess_error, styles);
    end(plot, w.ess);

    const logs = w.largest.map((v) => (v > 0 ? Math.log10(v) : null)), known = logs.filter((v) => v !== null);
    const y = [Math.min(...known) - 0.15, Math.max(...known) + 0.15];
    plot = begin("curve-largest", y, ticksOfPowers(...y, (v) => `${shown(100 * v, 2)} %`));
    line(plot, all.u, logs, colour("model"), { width: 1.2 });
    marks(plot, all.u, logs, null, styles);
    end(plot, logs);

    const values = [...w.log_z, ...(w.exact || []), ...(w.integral || [])].filter((v) => v !== null);
    if (!get("curve-log-z")) return;
    const low = Math.min(...values), wide = Math.max(...values) - low || 1, room = [low - 0.08 * wide, low + 1.08 * wide];
    plot = begin("curve-log-z", room, ticksBetween(...room, 4));
    if (w.exact) line(plot, all.u, w.exact, colour("truth"), { width: 4 });
    if (w.integral) line(plot, all.u, w.integral, colour("model"), { width: 1.4, dash: [5, 4] });
    marks(plot, all.u, w.log_z, w.log_z_error, styles);
    end(plot, w.log_z);
  }

  /** Where a cell of an axis begins and ends: halfway to its neighbours. */
  function edges(u) {
    const middle = u.slice(1).map((v, i) => (v + u[i]) / 2);
    return [u[0] - 0.06, ...middle, u[u.length - 1] + 0.06];
  }

  function drawMaps() {
    const w = all.weights, place = placeOf(now), [across, up] = all.axes, ex = edges(across.u), ey = edges(up.u);
    const quantities = [["map-ess", w.ess, (v) => `${shown(100 * v, 3)} %`], ["map-largest", w.largest.map((v) => (v > 0 ? Math.log10(v) : null)), (v) => `${shown(100 * 10 ** v, 2)} %`], ["map-log-z", w.log_z, (v) => shown(v, 3)]];
    for (const [id, values, write] of quantities) {
      if (!get(id)) continue;
      const at = (i, j) => indexOf([i, j, ...place.slice(2)]);
      const here = across.u.flatMap((_, i) => up.u.map((_, j) => values[at(i, j)])).filter((v) => v !== null);
      const least = Math.min(...here), most = Math.max(...here), [low, wide] = id === "map-ess" ? [0, 1] : [least, most - least || 1], box = [ex[0], ex[ex.length - 1]];
      const plot = axes(get(id), { x: box, y: [ey[0], ey[ey.length - 1]], xTicks: across.ticks, yTicks: up.ticks, xName: across.name, yName: `${up.name}    ${write(least)} to ${write(most)}`, grid: false });
      const { ctx, X, Y } = plot;
      across.u.forEach((_, i) => up.u.forEach((_, j) => {
        const v = values[at(i, j)], left = X(ex[i]), top = Y(ey[j + 1]), right = X(ex[i + 1]), bottom = Y(ey[j]);
        const palette = palettes.density, rgb = v === null ? null : palette[Math.round(((v - low) / wide) * (palette.length - 1))];
        ctx.fillStyle = rgb ? `rgb(${rgb})` : colour("line");
        ctx.fillRect(left, top, right - left + 0.5, bottom - top + 0.5);
        if (!w.usable[at(i, j)]) line({ ctx, X: (a) => a, Y: (b) => b }, [left, right], [top, bottom], colour("bad"), { width: 1.6 });
      }));
      get(id).back = (px, py) => [closest(across.u, ex[0] + ((px - plot.box.left) / (plot.box.right - plot.box.left)) * (box[1] - box[0])), closest(up.u, ey[0] + ((plot.box.bottom - py) / (plot.box.bottom - plot.box.top)) * (ey[ey.length - 1] - ey[0]))];
      for (const { u } of all.boundary) {
        ctx.fillStyle = colour("data");
        ctx.strokeStyle = "white";
        ctx.lineWidth = 1;
        ctx.beginPath();
        [[0, -6], [5.5, 5], [-5.5, 5]].forEach(([dx, dy], k) => ctx[k ? "lineTo" : "moveTo"](X(u[0]) + dx, Y(u[1]) + dy));
        ctx.closePath();
        ctx.fill();
        ctx.stroke();
      }
      for (const [style, width] of [["black", 4], ["white", 2]]) {
        ctx.strokeStyle = style;
        ctx.lineWidth = width;
        ctx.beginPath();
        ctx.arc(X(across.u[place[0]]), Y(up.u[place[1]]), 8, 0, 2 * Math.PI);
        ctx.stroke();
      }
    }
  }

  function drawTraining() {
    all.training.forEach((panel, k) => {
      const logs = (v) => (v === null ? null : panel.log ? Math.log10(v) : v);
      const values = panel.series.flatMap((s) => s.y.flat()).filter((v) => v !== null).map(logs);
      const sorted = [...values].sort((a, b) => a - b), last = Math.max(...panel.series.flatMap((s) => s.x));
      // A first loss may be huge: the axis ends where all but the largest hundredth do.
      let low = sorted[0], high = panel.percent ? 1 : sorted[Math.floor(0.99 * (sorted.length - 1))];
      if (panel.percent) low = 0;
      const room = 0.06 * (high - low || 1), y = panel.percent ? [0, 1.04] : [low - room, high + room];
      const yTicks = panel.log ? ticksOfPowers(...y) : panel.percent ? [0, 0.25, 0.5, 0.75, 1].map((v) => [v, `${100 * v} %`]) : ticksBetween(...y, 4);
      const plot = axes(get(`training-${k}`), { x: [0, last], y, xTicks: ticksBetween(0, last, 4), yTicks, xName: "step" });
      panel.series.forEach((s, i) => {
        for (const ys of s.y) line(plot, s.x, ys.map((v) => (v === null ? null : Math.min(logs(v), y[1]))), colour(`line-${i % 5}`), { width: s.y.length > 1 ? 1 : 1.6 });
      });
    });
  }

  function write() {
    const w = all.weights, c = told(all.c[now]), place = placeOf(now);
    sliders.forEach((slider, i) => (get(`${slider.id}-value`).textContent = shown(all.axes[i].c[place[i]])));
    let said = `c = ${c}`;
    if (w) {
      const percent = (v) => (v === null ? null : 100 * v);
      get("n-ess").textContent = withError(percent(w.ess[now]), percent(w.ess_error[now]), " %");
      get("n-largest").textContent = `${shown(percent(w.largest[now]), 2)} %`;
      get("n-khat").textContent = w.khat[now] === null ? "too few to tell" : w.khat[now].toFixed(2).replace("-", "−");
      get("n-log-z").textContent = now === all.home ? "0, the reference" : withError(w.log_z[now], w.log_z_error[now]);
      get("numbers").classList.toggle("useless", !w.usable[now]);
      get("n-use").textContent = w.usable[now] ? "weights can be used" : "weights cannot be used";
      said += `, ESS ${get("n-ess").textContent}, ${get("n-use").textContent}`;
    }
    if (all.boundary.some((b) => apart(b.u, all.u[now]) < 1e-8)) said += ", a boundary value";
    for (const slider of sliders) slider.setAttribute("aria-valuetext", said);
    for (const node of document.querySelectorAll("[data-show=c]")) node.textContent = c;
    const data = all.boundary.length ? told(all.boundary[nearest()].c) : "";
    for (const node of document.querySelectorAll("[data-show=c0]")) node.textContent = data;
  }

  let waiting = 0;
  function redraw() {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => {
      write();
      drawMarginals();
      if (points) drawPoints();
      if (density) drawDensity();
      if (torsions) drawTorsions();
      if (fields) drawFields();
      if (all.weights) several ? drawMaps() : drawCurves();
    });
  }
  function redrawAll() {
    redraw();
    drawTraining();
  }

  function move(place) {
    now = indexOf(place.map((p, i) => Math.min(Math.max(p, 0), sizes[i] - 1)));
    placeOf(now).forEach((p, i) => (sliders[i].value = p));
    redraw();
  }

  // Playing goes to and fro until it is stopped, slowly where less motion is asked for.
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  let playing = 0, direction = 1;
  function play(on) {
    clearInterval(playing);
    playing = 0;
    get("play").setAttribute("aria-pressed", String(on));
    get("play").setAttribute("aria-label", on ? "Stop" : "Play: sweep c");
    if (!on) return;
    playing = setInterval(() => {
      const [first, ...others] = placeOf(now);
      if (first + direction < 0 || first + direction >= sizes[0]) direction = -direction;
      move([first + direction, ...others]);
    }, still.matches ? 1200 : 160);
  }

  for (const slider of sliders)
    slider.addEventListener("input", () => {
      play(false);
      move(sliders.map((s) => Number(s.value)));
    });
  get("play").addEventListener("click", () => play(!playing));
  for (const id of ["zoom", "across", "up", "by-weight"]) if (get(id)) get(id).addEventListener("change", redraw);

  // A curve is a second slider, for a pointer.
  for (const canvas of document.querySelectorAll("canvas.curve")) {
    const follow = (event) => {
      if (!event.buttons) return;
      play(false);
      const u = canvas.inverse(event.clientX - canvas.getBoundingClientRect().left);
      move([closest(all.u, u)]);
    };
    canvas.addEventListener("pointerdown", follow);
    canvas.addEventListener("pointermove", follow);
  }
  for (const canvas of document.querySelectorAll("canvas.map")) {
    const follow = (event) => {
      if (!event.buttons || !canvas.back) return;
      play(false);
      const { left, top } = canvas.getBoundingClientRect();
      move([...canvas.back(event.clientX - left, event.clientY - top), ...placeOf(now).slice(2)]);
    };
    canvas.addEventListener("pointerdown", follow);
    canvas.addEventListener("pointermove", follow);
  }

  const dark = window.matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  get("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("trade-theme", root.dataset.theme);
    } catch {
      // a page from a file may keep nothing
    }
    redrawAll();
  });
  try {
    const kept = localStorage.getItem("trade-theme");
    if (kept) root.dataset.theme = kept;
  } catch {
    // as above
  }
  dark.addEventListener("change", redrawAll);

  document.querySelectorAll(".slider-marks").forEach((marksAt, i) => {
    for (const { u } of all.boundary) {
      const mark = marksAt.appendChild(document.createElement("i"));
      mark.style.setProperty("--at", closest(all.axes[i].u, [u].flat()[i]) / (sizes[i] - 1));
    }
  });
  for (const bar of document.querySelectorAll("[data-colours]")) {
    bar.style.background = `linear-gradient(to right, ${palettes[bar.dataset.colours].map((rgb) => `rgb(${rgb})`).join(", ")})`;
  }
  placeOf(now).forEach((p, i) => {
    sliders[i].max = sizes[i] - 1;
    sliders[i].value = p;
  });
  new ResizeObserver(redrawAll).observe(document.querySelector("main"));
  for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", redrawAll);
  redrawAll();
})();
