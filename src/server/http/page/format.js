// Figures and words for people.

const UNKNOWN = -1;

/** MiB as people say it. */
export function mib(value) {
  if (value === undefined || value === null || value === UNKNOWN) return "–";
  const abs = Math.abs(value);
  if (abs >= 1024 * 1024) return `${short(value / 1024 / 1024)} TiB`;
  if (abs >= 1024) return `${short(value / 1024)} GiB`;
  return `${value} MiB`;
}

/** Units of 10⁶ bytes, in which nodes report disk. */
export function megabytes(value) {
  if (value === undefined || value === null || value === UNKNOWN) return "–";
  const abs = Math.abs(value);
  if (abs >= 1e6) return `${short(value / 1e6)} TB`;
  if (abs >= 1e3) return `${short(value / 1e3)} GB`;
  return `${value} MB`;
}

export function count(value) {
  return value === undefined || value === null || value === UNKNOWN ? "–" : Number(value).toLocaleString("en-GB");
}

function short(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(1).replace(/\.0$/, "");
}

/** A rate per second. */
export function rate(value) {
  return value === 0 ? "0" : value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** Seconds as people say it. */
export function span(seconds) {
  if (seconds === undefined || seconds === null || seconds < 0) return "–";
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function shortId(id) {
  return id.length > 8 && id.includes("-") ? id.slice(0, 8) : id;
}

/** Which of its tries this is, where an instance was placed again after it had ended; null for most. */
export function retry(row) {
  return row.retries && row.retries_max !== undefined ? `try ${row.retries + 1} of ${row.retries_max + 1}` : null;
}

/** What an instance is called. */
export function instanceName(row) {
  return row.name || row.instance_uuid;
}

export function nodeName(row) {
  return row.hostname || shortId(row.node_uuid);
}

/** How a node is, in a word, and which colour that has. */
export function nodeState(row) {
  const status = row.status.toLowerCase();
  if (row.status === "LOST") return [status, "bad"];
  if (row.status === "EXPECTED" || row.status === "OFFLINE") return [status, "gone"];
  if (row.drain) return ["draining", "hold"];
  if (row.cordoned) return ["cordoned", "hold"];
  if (row.status === "MAINTENANCE") return [status, "hold"];
  if (row.status === "FULL" || row.fault) return [row.fault ? "fault" : status, "warn"];
  if (row.status === "READY") return ["ready", "good"];
  return [status, ""];
}

const INSTANCE_KINDS = {
  running: "good", waiting: "warn", placed: "live", in_doubt: "warn", lost: "bad", ended: "",
  suspended: "hold", suspending: "hold", resuming: "live", migrating: "live", stopping: "", placing: "live",
};

/** How an instance is: where it is in its life, or for the scheduler. */
export function instanceState(row) {
  if (row.failed) return ["failed", "bad"];
  const word = row.life && row.state !== "ended" ? row.life : row.state;
  return [word.replace("_", " "), INSTANCE_KINDS[word] ?? INSTANCE_KINDS[row.state] ?? ""];
}

/** How much of something is claimed, 0 to 1; NaN where that is not known. */
export function share(total, free) {
  if (!(total > 0) || free === undefined || free === UNKNOWN) return NaN;
  return Math.min(1, Math.max(0, (total - free) / total));
}

/** The same by what is claimed and what is free: with overcommitment a node offers more than it has. */
export function shareOf(claimed, free) {
  if (free === undefined || free === UNKNOWN || Number.isNaN(claimed)) return NaN;
  return claimed > 0 ? Math.min(1, claimed / (claimed + Math.max(0, free))) : 0;
}

export function percent(value) {
  return Number.isNaN(value) ? "–" : `${Math.round(value * 100)} %`;
}

export const byName = new Intl.Collator("en", { numeric: true }).compare;
