// Lines over the last 15 minutes, drawn as SVG.

import { delay, short } from "/text.js";
import { element, set } from "/tables.js";

const SPAN_MS = 15 * 60 * 1000;
// A longer time without a point interrupts the line.
const GAP_MS = 5000;
const [WIDTH, HEIGHT, TOP] = [600, 140, 4];
// The number of line styles that differ by more than their colour.
const MOST_LINES = 8;

function svg(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** The points of one instance: time_ms, and a list for each name. */
export class History {
  constructor(instance) {
    this.points = (instance?.time_ms ?? []).map((time, at) => ({
      time,
      packets: instance.packets[at],
      delivered: instance.delivered[at],
      dropped: instance.dropped[at],
      moves: instance.moves[at],
      deferred: instance.deferred[at],
      delay_p50_ns: instance.delay_p50_ns[at],
      delay_p99_ns: instance.delay_p99_ns[at],
      cpus: new Map(instance.cpus.map((on) => [on.cpu, on.delivered[at]])),
    }));
  }

  /** Adds the rates of an answer. */
  add(time, rates) {
    const last = this.points.at(-1);
    if (!rates || (last && time < last.time + 900)) return;
    const cpus = new Map(rates.cpus.map((on) => [on.cpu, on.delivered]));
    const { packets, delivered, dropped, moves, deferred, delay_p50_ns, delay_p99_ns } = rates.totals;
    this.points.push({ time, packets, delivered, dropped, moves, deferred, delay_p50_ns, delay_p99_ns, cpus });
    while (this.points.length > 0 && this.points[0].time < time - SPAN_MS) this.points.shift();
  }

  /** The CPUs that delivered most packets, and the number of the others. */
  cpus() {
    const sums = new Map();
    for (const point of this.points) {
      for (const [cpu, value] of point.cpus) sums.set(cpu, (sums.get(cpu) ?? 0) + (value ?? 0));
    }
    const most = [...sums].sort((one, other) => other[1] - one[1]).slice(0, MOST_LINES).map(([cpu]) => cpu);
    return [most.sort((one, other) => one - other), sums.size - most.length];
  }
}

function line(points, value, end, most) {
  let [path, last] = ["", null];
  for (const point of points) {
    const y = value(point);
    if (y === null || y === undefined) {
      last = null;
      continue;
    }
    const x = WIDTH - ((end - point.time) / SPAN_MS) * WIDTH;
    const move = last === null || point.time - last > GAP_MS;
    path += `${move ? "M" : "L"}${x.toFixed(1)} ${(HEIGHT - (y / most) * (HEIGHT - TOP)).toFixed(1)}`;
    last = point.time;
  }
  return path;
}

function figure(id, title) {
  const known = document.getElementById(id);
  if (known) return known;
  const made = element("figure", "", element("figcaption", "", title), element("div", "plot"), element("ul", "legend"));
  made.id = id;
  document.getElementById("charts").append(made);
  return made;
}

function chart(id, title, points, lines, show) {
  const made = figure(id, title);
  set(made.querySelector("figcaption"), title);
  const end = points.at(-1)?.time ?? Date.now();
  const values = lines.map(([, value]) => points.map(value).filter((y) => y !== null && y !== undefined));
  const most = Math.max(1, ...values.map((of) => of.reduce((max, y) => Math.max(max, y), 0)));
  const latest = values.map((of) => of.at(-1));
  const summary = lines.map(([name], at) => `${name} ${show(latest[at])}`).join(", ");
  const label = `${title}, the last 15 minutes. Now: ${summary}. Highest: ${show(most)}.`;
  const plot = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  for (const y of [TOP, (HEIGHT + TOP) / 2, HEIGHT]) {
    plot.append(svg("line", { x1: 0, x2: WIDTH, y1: y, y2: y, class: "axis" }));
  }
  lines.forEach(([, value], at) => plot.append(svg("path", { d: line(points, value, end, most), class: `s${at % MOST_LINES}` })));
  const scale = ["−15 min", `scale: 0 to ${show(most)}`, "now"].map((text) => element("span", "", text));
  made.querySelector(".plot").replaceChildren(plot, element("p", "scale", ...scale));
  made.querySelector(".legend").replaceChildren(...lines.map(([name], at) => {
    const sample = svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("path", { d: "M0 5L26 5", class: `s${at % MOST_LINES}` }));
    return element("li", "", sample, `${name}: ${show(latest[at])}`);
  }));
}

/** Draws all charts. */
export function draw(history) {
  const points = history.points;
  chart("chart-packets", "Packets per second", points, [
    ["received", (point) => point.packets],
    ["delivered", (point) => point.delivered],
    ["dropped", (point) => point.dropped],
  ], short);
  const [cpus, others] = history.cpus();
  const title = `Delivered per second, by CPU${others > 0 ? ` (the largest ${MOST_LINES}; ${others} more)` : ""}`;
  chart("chart-cpus", title, points, cpus.map((cpu) => [`CPU ${cpu}`, (point) => point.cpus.get(cpu)]), short);
  if (points.some((point) => point.delay_p99_ns !== null && point.delay_p99_ns !== undefined)) {
    chart("chart-delay", "Delay from arrival to delivery", points, [
      ["p50", (point) => point.delay_p50_ns],
      ["p99", (point) => point.delay_p99_ns],
    ], delay);
  }
  chart("chart-order", "Order guard, packets per second", points, [
    ["flow moved", (point) => point.moves],
    ["deferred", (point) => point.deferred],
  ], short);
}
