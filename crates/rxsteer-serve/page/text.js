// Numbers and times as text.

const grouped = new Intl.NumberFormat("en-US");

/** A count, all digits: 1,234,567. */
export function count(value) {
  return value === null || value === undefined ? "–" : grouped.format(value);
}

/** A number with three digits and a prefix: 12.3 k. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const prefixes = ["", " k", " M", " G", " T"];
  let step = 0;
  while (Math.abs(value) >= 999.5 && step + 1 < prefixes.length) {
    value /= 1000;
    step += 1;
  }
  const digits = step === 0 && Number.isInteger(value) ? 0 : value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toFixed(digits) + prefixes[step];
}

/** Nanoseconds: 12.3 µs. */
export function delay(ns) {
  if (ns === null || ns === undefined) return "–";
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) {
    if (ns >= size) return `${(ns / size).toPrecision(3)} ${unit}`;
  }
  return `${ns} ns`;
}

/** Nanoseconds since a start: 1 d 2 h 3 min. */
export function since(ns) {
  let seconds = Math.floor(ns / 1e9);
  const parts = [];
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const whole = Math.floor(seconds / size);
    seconds -= whole * size;
    if (whole > 0) parts.push(`${whole} ${unit}`);
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

/** A share from 0 to 1: 12 %. */
export function percent(share) {
  return share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`;
}

/** Milliseconds of Unix time: 12:34:56. */
export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}
