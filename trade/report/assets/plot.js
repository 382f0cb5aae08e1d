"use strict";
// Drawing: axes, lines, steps, points and pictures on a canvas, in the colours of the page and one size of text.

const TEXT = 12; // pixels, of all text in figures
const FONT = `${TEXT}px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif`;

/** Numbers of an array that was packed: its quanta, and the value of each. */
function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (s) => s.charCodeAt(0));
  const whole = packed.bits === 8 ? bytes : new Uint16Array(bytes.length / 2).map((_, i) => bytes[2 * i] + 256 * bytes[2 * i + 1]);
  const step = (packed.high - packed.low) / (2 ** packed.bits - 1);
  return { whole, shape: packed.shape, top: 2 ** packed.bits - 1, value: (i) => packed.low + step * whole[i] };
}

/** A number as people write it. */
function shown(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "not known";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-4 ? value.toExponential(Math.max(digits - 2, 0)) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

/** A number with its standard error, to the digits that the error allows. */
function withError(value, error, unit = "") {
  if (value === null || !Number.isFinite(value)) return "not known";
  if (error === null || !Number.isFinite(error)) return `${shown(value, 3)}${unit}, error not known`;
  const digits = error > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(error)), 0), 6) : 2;
  return `${value.toFixed(digits).replace("-", "−")} ± ${error.toFixed(digits)}${unit}`;
}

/** Round numbers between two ends. */
function ticksBetween(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found.map((v) => [v, shown(Math.abs(v) < 1e-9 * step ? 0 : v)]);
}

/** Round numbers between two ends given as logarithms: powers of ten, or 1, 2 and 5 times them where few fit. */
function ticksOfPowers(low, high, write = (v) => shown(v, 1)) {
  const few = high - low < 2.2, every = few ? 1 : Math.ceil((high - low) / 4), found = [];
  for (let p = Math.floor(low); p <= high; p += 1) {
    for (const m of few ? [1, 2, 5] : [1]) {
      const at = p + Math.log10(m);
      if (at >= low && at <= high && p % every === 0) found.push([at, write(m * 10 ** p)]);
    }
  }
  return found.length > 1 ? found : [low, high].map((v) => [v, write(Number((10 ** v).toPrecision(2)))]);
}

/** A canvas made ready: its context and size in pixels of the page, cleared. */
function ready(canvas) {
  const { width, height } = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext("2d");
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.font = FONT;
  return { ctx, width, height };
}

/** The page's colour of a name, as it is in the mode in force. */
function colour(name) {
  const probe = colour.probe || (colour.probe = document.body.appendChild(Object.assign(document.createElement("i"), { hidden: true })));
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** Axes with ticks and names; gives the maps of both axes. */
function axes(canvas, { x, y, xTicks, yTicks, xName = "", yName = "", grid = true }) {
  const { ctx, width, height } = ready(canvas);
  const labels = yTicks || [];
  const left = labels.length ? Math.ceil(Math.max(...labels.map(([, t]) => ctx.measureText(t).width))) + 10 : 4;
  const box = { left, right: width - 8, top: yName ? TEXT + 10 : 8, bottom: height - TEXT - (xName ? TEXT + 14 : 10) };
  const X = (v) => box.left + ((v - x[0]) / (x[1] - x[0])) * (box.right - box.left);
  const Y = (v) => box.bottom - ((v - y[0]) / (y[1] - y[0])) * (box.bottom - box.top);
  canvas.inverse = (at) => x[0] + ((at - box.left) / (box.right - box.left)) * (x[1] - x[0]);
  ctx.lineWidth = 1;
  ctx.strokeStyle = colour("line");
  ctx.fillStyle = colour("soft");
  ctx.textBaseline = "top";
  ctx.beginPath();
  let edge = -Infinity;
  for (const [v, text] of xTicks || []) {
    const at = X(v), half = ctx.measureText(text).width / 2;
    const middle = Math.min(Math.max(at, half), width - half);
    if (middle - half < edge + 6) continue; // it would touch the one before
    edge = middle + half;
    ctx.textAlign = "center";
    ctx.fillText(text, middle, box.bottom + 6);
    ctx.moveTo(at, box.bottom);
    ctx.lineTo(at, box.bottom + 4);
  }
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (const [v, text] of labels) {
    ctx.fillText(text, box.left - 6, Y(v));
    ctx.moveTo(box.left, Y(v));
    ctx.lineTo(grid ? box.right : box.left - 3, Y(v));
  }
  ctx.stroke();
  ctx.strokeStyle = colour("edge");
  ctx.beginPath();
  ctx.moveTo(box.left, box.bottom);
  ctx.lineTo(box.right, box.bottom);
  ctx.stroke();
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  if (xName) ctx.fillText(xName, box.right, height - 1);
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  if (yName) ctx.fillText(yName, 0, 2);
  return { ctx, X, Y, box };
}

/** A line through points; where one is not a number it is broken. */
function line({ ctx, X, Y }, xs, ys, style, { width = 1.8, dash = [] } = {}) {
  ctx.strokeStyle = style;
  ctx.lineWidth = width;
  ctx.lineJoin = "round";
  ctx.setLineDash(dash);
  ctx.beginPath();
  let begun = false;
  xs.forEach((x, i) => {
    if (ys[i] === null || !Number.isFinite(ys[i])) return void (begun = false);
    begun ? ctx.lineTo(X(x), Y(ys[i])) : ctx.moveTo(X(x), Y(ys[i]));
    begun = true;
  });
  ctx.stroke();
  ctx.setLineDash([]);
}

/** A histogram between two ends, filled or as an outline. */
function stairs({ ctx, X, Y, box }, heights, [low, high], style, { fill = false, width = 1.8, dash = [] } = {}) {
  const step = (high - low) / heights.length;
  ctx.save();
  ctx.beginPath();
  ctx.rect(box.left, box.top - 4, box.right - box.left, box.bottom - box.top + 4);
  ctx.clip();
  ctx.beginPath();
  ctx.moveTo(X(low), Y(0));
  heights.forEach((h, i) => {
    ctx.lineTo(X(low + i * step), Y(h));
    ctx.lineTo(X(low + (i + 1) * step), Y(h));
  });
  ctx.lineTo(X(high), Y(0));
  ctx.setLineDash(dash);
  ctx.lineWidth = width;
  ctx.fillStyle = ctx.strokeStyle = style;
  fill ? ctx.fill() : ctx.stroke();
  ctx.restore();
}

/** Points with an error bar of two standard errors, where it is known; hollow where it is not, or where it is useless. */
function marks({ ctx, X, Y, box }, xs, ys, errors, styles) {
  const limit = (v) => Math.min(Math.max(v, box.top), box.bottom);
  xs.forEach((x, i) => {
    if (ys[i] === null) return;
    ctx.strokeStyle = ctx.fillStyle = styles[i];
    ctx.lineWidth = 1.2;
    if (errors && errors[i] !== null) {
      ctx.beginPath();
      ctx.moveTo(X(x), limit(Y(ys[i] - 2 * errors[i])));
      ctx.lineTo(X(x), limit(Y(ys[i] + 2 * errors[i])));
      ctx.stroke();
    }
    ctx.beginPath();
    ctx.arc(X(x), Y(ys[i]), 2.6, 0, 2 * Math.PI);
    if (errors && errors[i] === null) ctx.fillStyle = colour("card");
    ctx.fill();
    ctx.stroke();
  });
}

/** A picture of shares from 0 to 1 in a box; `at(column, row)` gives the share, rows upwards. */
function picture(ctx, box, columns, rows, at, palette, smooth = true) {
  const small = document.createElement("canvas");
  small.width = columns;
  small.height = rows;
  const pixels = new ImageData(columns, rows);
  for (let j = 0; j < rows; j++) {
    for (let i = 0; i < columns; i++) {
      const rgb = palette[Math.round(at(i, rows - 1 - j) * (palette.length - 1))];
      pixels.data.set([rgb[0], rgb[1], rgb[2], 255], 4 * (j * columns + i));
    }
  }
  small.getContext("2d").putImageData(pixels, 0, 0);
  ctx.imageSmoothingEnabled = smooth;
  ctx.imageSmoothingQuality = "high";
  ctx.drawImage(small, box.left, box.top, box.right - box.left, box.bottom - box.top);
}
