// The tables. All text comes from outside, so the page inserts it only as textContent.

import { clock, count, delay, percent, short } from "/text.js";

/** Makes an element with classes and children. */
export function element(name, classes, ...children) {
  const made = document.createElement(name);
  if (classes) made.className = classes;
  made.append(...children);
  return made;
}

/** A bar of parts, each [class, share of the whole]. */
function bar(parts) {
  const made = element("div", "bar");
  made.setAttribute("aria-hidden", "true");
  for (const [kind, share] of parts) {
    const part = element("span", kind);
    part.style.width = `${Math.min(1, Math.max(0, share || 0)) * 100}%`;
    made.append(part);
  }
  return made;
}

/** A cell for each CPU, filled in proportion to the flow's share there. */
function strip(shares, cpus) {
  const made = element("span", "strip");
  made.setAttribute("aria-hidden", "true");
  for (const cpu of cpus.slice(0, 64)) {
    const filled = element("span");
    filled.style.opacity = shares.get(cpu) ?? 0;
    made.append(element("span", "", filled));
  }
  return made;
}

/**
 * Fills a table: `columns` are [heading, classes, row => text or {text, draw}]; the first is the row's heading.
 * It writes only cells that changed, so that a screen reader keeps its place.
 */
function fill(id, caption, columns, rows, filter) {
  const table = document.getElementById(id);
  const [head, body] = [table.tHead, table.tBodies[0]];
  const signature = columns.map(([heading]) => heading).join("\n");
  if (table.dataset.columns !== signature) {
    table.dataset.columns = signature;
    const cells = columns.map(([heading, classes]) => {
      const cell = element("th", classes, heading);
      cell.scope = "col";
      return cell;
    });
    head.replaceChildren(element("tr", "", ...cells));
    body.replaceChildren();
  }
  const cells = rows.map((row) => columns.map(([, , show]) => show(row)));
  const text = (cell) => (typeof cell === "object" ? cell.text : cell);
  const shown = cells.filter((row) => row.some((cell) => text(cell).toLowerCase().includes(filter)));
  shown.forEach((row, index) => {
    const line = body.rows[index] ?? body.appendChild(newRow(columns));
    row.forEach((cell, at) => write(line.cells[at], cell));
  });
  while (body.rows.length > shown.length) body.deleteRow(-1);
  const hidden = rows.length === shown.length ? "" : ` ${shown.length} of ${rows.length} match the filter.`;
  set(table.caption, caption + hidden);
}

function newRow(columns) {
  return element("tr", "", ...columns.map(([, classes], index) => {
    const cell = element(index === 0 ? "th" : "td", classes);
    if (index === 0) cell.scope = "row";
    return cell;
  }));
}

function write(cell, content) {
  if (typeof content !== "object") return set(cell, content);
  cell.replaceChildren(...[content.draw].flat(), content.text);
}

/** Writes text if it changed. */
export function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The rates per second from the counts of `before` to those of `now`. */
function perSecond(now, before, seconds) {
  return (name) => (before && seconds > 0 && name in before ? Math.max(0, now[name] - before[name]) / seconds : null);
}

const total = (drops) => Object.values(drops).reduce((sum, drop) => sum + drop, 0);

export function cpus(status, before, host, filter) {
  const seconds = before ? (status.running_ns - before.running_ns) / 1e9 : 0;
  const rates = new Map((status.rates?.cpus ?? []).map((rates) => [rates.cpu, rates]));
  const load = new Map((host?.cpus ?? []).map((load) => [load.cpu, load]));
  const earlier = new Map((before?.cpus ?? []).map((on) => [on.cpu, on]));
  const rows = status.cpus.map((on) => ({ on, rates: rates.get(on.cpu), load: load.get(on.cpu), before: earlier.get(on.cpu) }));
  const most = Math.max(1, ...rows.map(({ rates }) => Math.max(rates?.packets ?? 0, rates?.delivered ?? 0)));
  const would = status.settings.shadow && status.cpus.some((on) => "would" in on)
    ? [
        ["would carry/s", "", ({ on, before }) => short(perSecond(on, before, seconds)("would"))],
        ["would carry", "", ({ on }) => count(on.would)],
      ]
    : [];
  const columns = [
    ["CPU", "", ({ on }) => String(on.cpu)],
    ["received/s", "", ({ rates }) => ({ text: short(rates?.packets), draw: bar([["load", (rates?.packets ?? 0) / most]]) })],
    ["bits/s", "", ({ rates }) => short(rates?.bits)],
    ["delivered/s", "", ({ rates }) => ({ text: short(rates?.delivered), draw: bar([["load", (rates?.delivered ?? 0) / most]]) })],
    ...would,
    ["CPU time", "", ({ load }) => ({ text: "", draw: bar([["softirq", load?.softirq], ["other", load?.other]]) })],
    ["softirq", "", ({ load }) => percent(load?.softirq)],
    ["applications", "", ({ load }) => percent(load?.other)],
    ["idle", "", ({ load }) => percent(load?.idle)],
    ["backlog", "", ({ on }) => count(on.waiting)],
    ["drops/s", "", ({ rates }) => short(rates?.dropped)],
    ["delay p50", "", ({ rates }) => delay(rates?.delay_p50_ns)],
    ["delay p99", "", ({ rates }) => delay(rates?.delay_p99_ns)],
    ["received", "", ({ on }) => count(on.received)],
    ["delivered", "", ({ on }) => count(on.delivered)],
    ["dropped", "", ({ on }) => count(total(on.drops))],
  ];
  fill("cpus", "CPUs that receive or process packets.", columns, rows, filter);
}

const RULES = [
  ["local", "not steered: no rule applies"],
  ["bound", "the CPU that the RX queue is bound to"],
  ["hashed", "the CPU that the flow hash selects"],
  ["in_slots", "the CPU of the sparse slot"],
  ["rfs", "the CPU where the application runs"],
  ["matched", "the CPU that a rule before the policy selects"],
  ["moves", "order guard: the flow moved to another CPU"],
  ["deferred", "order guard: the flow stayed, because earlier packets were under way"],
];

export function rules(status, before, filter) {
  const seconds = before ? (status.running_ns - before.running_ns) / 1e9 : 0;
  const rate = perSecond(status, before, seconds);
  const all = Math.max(1, status.received);
  const rows = RULES.map(([name, about]) => ({ name, about, packets: status[name], rate: rate(name) }));
  fill("rules", "Packets by the rule that chose their CPU.", [
    ["rule", "", ({ name }) => name],
    ["packets/s", "", ({ rate }) => short(rate)],
    ["packets", "", ({ packets }) => count(packets)],
    ["share", "", ({ packets }) => ({ text: percent((packets ?? 0) / all), draw: bar([["load", (packets ?? 0) / all]]) })],
    ["meaning", "text", ({ about }) => about],
  ], rows, filter);
}

export function interfaces(status, filter) {
  const rates = new Map((status.rates?.interfaces ?? []).map((rates) => [rates.name, rates]));
  fill("interfaces", "Interfaces and the packets that they received.", [
    ["interface", "", (known) => known.name],
    ["state", "text", (known) => known.state],
    ["packets/s", "", (known) => short(rates.get(known.name)?.packets)],
    ["bits/s", "", (known) => short(rates.get(known.name)?.bits)],
    ["received", "", (known) => count(known.received)],
    ["redirected", "", (known) => count(known.redirected)],
    ["passed", "", (known) => count(known.passed)],
    ["malformed", "", (known) => count(known.malformed)],
    ["remark", "text long", (known) => known.why ?? ""],
  ], status.interfaces, filter);
}

export function flows(status, before, filter) {
  const seconds = before ? (status.running_ns - before.running_ns) / 1e9 : 0;
  const earlier = new Map((before?.largest_flows ?? []).map((flow) => [flow.flow, flow]));
  const cpus = status.cpus.map((on) => on.cpu);
  const rows = status.largest_flows ?? [];
  const at = (flow) => {
    const shares = new Map(flow.cpus.map((on) => [on.cpu, on.packets / Math.max(1, flow.packets)]));
    const parts = [...shares].map(([cpu, share]) => `${cpu}: ${percent(share)}`);
    if (flow.other_cpus) parts.push(`others: ${percent(flow.other_cpus / Math.max(1, flow.packets))}`);
    return { text: parts.join(", "), draw: strip(shares, cpus) };
  };
  const last = rows.some((flow) => "last_cpu" in flow) ? [["now on", "", (flow) => `${flow.last_cpu ?? "–"}`]] : [];
  const caption = status.settings.flow_stats ? `The ${rows.length} flows with the most packets, and their CPUs.` : `Flows are not counted (${status.command === "run" ? "with --no-flow-stats" : "without --flows"}).`;
  fill("flows", caption, [
    ["flow", "text", (flow) => flow.flow],
    ["packets/s", "", (flow) => short(perSecond(flow, earlier.get(flow.flow), seconds)("packets"))],
    ["packets", "", (flow) => count(flow.packets)],
    ["bytes", "", (flow) => count(flow.bytes)],
    ...last,
    ["CPUs", "text", at],
    ["moves", "", (flow) => count(flow.moves)],
    ["idle", "", (flow) => `${flow.idle_s.toFixed(1)} s`],
  ], rows, filter);
}

export function events(status, filter) {
  const rows = [...(status.events ?? [])].reverse();
  fill("events", rows.length ? "The latest first." : "None yet.", [
    ["time", "text", (event) => clock(event.time_ns / 1e6)],
    ["kind", "text", (event) => event.kind],
    ["description", "text long", (event) => event.text],
  ], rows, filter);
}
