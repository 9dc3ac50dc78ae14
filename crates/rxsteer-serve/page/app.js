// Requests the status each second, and shows it. The page sends no requests while it is paused or hidden.

import { draw, History } from "/charts.js";
import { cpus, element, events, flows, interfaces, rules, set } from "/tables.js";
import { clock, since } from "/text.js";

const STEP_MS = 1000;
const TIMEOUT_MS = 5000;

const at = (id) => document.getElementById(id);
const state = {
  answer: null,
  // The previous answer, for the rates of counters that the server does not compute.
  before: null,
  histories: new Map(),
  paused: false,
  // When the connection was lost, in milliseconds of Unix time.
  lost: null,
  stale: true,
  asking: false,
};

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  if (answer.ok) return answer.json();
  const why = answer.status === 401 ? "a token is required: open /?token=TOKEN once" : `status ${answer.status}`;
  throw new Error(why);
}

async function look() {
  if (state.paused || document.hidden || state.asking) return;
  state.asking = true;
  try {
    if (state.stale) {
      const { instances } = await ask("/api/history");
      state.histories = new Map(instances.map((known) => [`${known.socket} ${known.pid}`, new History(known)]));
      state.stale = false;
    }
    const answer = await ask("/api/status");
    state.before = state.answer;
    state.answer = answer;
    state.lost = null;
    for (const status of answer.instances) {
      const key = `${status.socket} ${status.pid}`;
      if (!state.histories.has(key)) state.histories.set(key, new History(null));
      state.histories.get(key).add(answer.time_ms, status.rates);
    }
    show();
  } catch (error) {
    // The next successful request first reads the history again.
    state.stale = true;
    state.lost ??= Date.now();
    say(`Connection lost since ${clock(state.lost)} (${error.message}); retrying`, true);
  } finally {
    state.asking = false;
  }
}

function say(text, lost) {
  at("state").classList.toggle("lost", Boolean(lost));
  set(at("state"), text);
}

/** The selected instance; after it restarts, the one with the same interfaces. */
function chosen() {
  const { instances } = state.answer;
  const select = at("instance");
  const names = (status) => status.interfaces.map((known) => known.name).join(", ");
  const options = instances.map((status) => [status.socket, `${names(status) || status.command} (${status.command} ${status.pid})`]);
  const known = [...select.options].map((option) => `${option.value} ${option.text}`).join("\n");
  if (known !== options.map(([value, text]) => `${value} ${text}`).join("\n")) {
    const [wanted, interfaces] = [select.value, select.selectedOptions[0]?.dataset.names];
    select.replaceChildren(...options.map(([value, text], index) => {
      const option = element("option", "", text);
      option.value = value;
      option.dataset.names = names(instances[index]);
      return option;
    }));
    const same = [...select.options].find((option) => option.value === wanted)
      ?? [...select.options].find((option) => option.dataset.names === interfaces);
    if (same) same.selected = true;
  }
  return instances.find((status) => status.socket === select.value) ?? instances[0];
}

function settings(status) {
  const { settings } = status;
  const pairs = [
    ["policy", status.policy], ["mode", settings.mode], ["CPUs", settings.cpus], ["else", settings.else],
    ["queue size", String(settings.queue_size)], ["threads", settings.threads],
    ["order guard", status.guarded ? "applies" : "bypassed: no flow moves under this policy"],
    ["running for", since(status.running_ns)], ["process", String(status.pid)],
  ];
  if (settings.flow_limit) pairs.push(["flow limit", String(settings.flow_limit)]);
  if (settings.rps_maps.length > 0) pairs.push(["maps", settings.rps_maps.join(", ")]);
  if (settings.rules?.length > 0) pairs.push(["rules", settings.rules.map(({ rule }) => rule).join("; ")]);
  if (settings.offline) pairs.push(["offline CPUs", settings.offline]);
  if (status.changing) pairs.push(["change", "in progress"]);
  const list = at("settings");
  const shape = pairs.map(([name]) => name).join("\n");
  if (list.dataset.shape !== shape) {
    list.dataset.shape = shape;
    list.replaceChildren(...pairs.map(([name]) => element("div", "", element("dt", "", name), element("dd"))));
  }
  pairs.forEach(([, value], index) => set(list.children[index].lastChild, value));
  at("shadow").hidden = !settings.shadow;
}

function show() {
  const { answer, before } = state;
  if (!answer) return;
  const filter = at("filter").value.trim().toLowerCase();
  const silent = answer.silent.map((one) => `${one.socket}: ${one.why}`).join("; ");
  at("silent").hidden = silent === "";
  set(at("silent"), silent);
  const status = chosen();
  if (!status) return say("No running instance of rxsteer answers", true);
  const earlier = before?.instances.find((known) => known.socket === status.socket && known.pid === status.pid);
  settings(status);
  cpus(status, earlier, answer.host, filter);
  rules(status, earlier, filter);
  interfaces(status, filter);
  flows(status, earlier, filter);
  events(status, filter);
  draw(state.histories.get(`${status.socket} ${status.pid}`) ?? new History(null));
  set(at("about"), `rxsteer ${answer.version}. The same data as JSON: /api/status; for Prometheus: /metrics.`);
  say(state.paused ? "Paused" : "Connected");
}

at("pause").addEventListener("click", () => {
  state.paused = !state.paused;
  at("pause").setAttribute("aria-pressed", String(state.paused));
  set(at("pause"), state.paused ? "Resume" : "Pause");
  state.stale = true;
  say(state.paused ? "Paused" : "Connecting…");
  look();
});
at("filter").addEventListener("input", show);
at("instance").addEventListener("change", show);
document.addEventListener("visibilitychange", () => {
  state.stale = true;
  look();
});
setInterval(look, STEP_MS);
look();
