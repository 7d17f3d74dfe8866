// Everything works without this: it adds the viewer's zone, fresh figures and keys.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const two = (number) => String(number).padStart(2, "0");

function local(date) {
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const ms = String(date.getMilliseconds()).padStart(3, "0");
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${ms}`;
}

function relative(date) {
  const seconds = (date - Date.now()) / 1000;
  const size = Math.abs(seconds);
  const [amount, unit] =
    size < 90 ? [seconds, "second"] : size < 5400 ? [seconds / 60, "minute"]
    : size < 172800 ? [seconds / 3600, "hour"] : [seconds / 86400, "day"];
  return new Intl.RelativeTimeFormat("en", { numeric: "auto" }).format(Math.round(amount), unit);
}

function showTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const date = new Date(time.dateTime);
    if (Number.isNaN(date.getTime()) || time.querySelector(".local")) continue;
    const span = document.createElement("span");
    span.className = "local";
    span.textContent = local(date);
    time.prepend(span);
    const utc = time.querySelector(".utc");
    if (utc) utc.textContent = `${time.dateTime.slice(11, 19)}Z`;
    time.title = `${relative(date)} · ${time.dateTime}`;
  }
  for (const span of root.querySelectorAll("[data-relative]")) {
    span.textContent = relative(new Date(span.dataset.relative));
  }
  for (const text of root.querySelectorAll("[data-axis]")) {
    text.textContent = local(new Date(text.dataset.axis)).slice(5, 16);
  }
}

// A picker in the viewer's zone beside the text field that is sent.
function addPickers() {
  for (const input of document.querySelectorAll("input[data-moment]")) {
    const picker = document.createElement("input");
    picker.type = "datetime-local";
    picker.step = "1";
    picker.setAttribute("aria-label", `Pick a time in ${zone}`);
    const row = document.createElement("div");
    row.className = "moment";
    input.replaceWith(row);
    row.append(input, picker);
    const show = () => {
      const date = new Date(input.value);
      picker.value = Number.isNaN(date.getTime()) ? "" : local(date).slice(0, 19).replace(" ", "T");
    };
    show();
    input.addEventListener("change", show);
    picker.addEventListener("change", () => {
      if (picker.value) input.value = new Date(picker.value).toISOString();
    });
  }
}

async function ask(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.json();
}

function showFreshness(view) {
  const pill = document.getElementById("freshness");
  const [kind, text] = view.trouble ? ["bad", view.trouble]
    : !view.complete ? ["bad", "reading the log"]
    : view.behindSeconds >= 1 ? [view.behindSeconds > 5 ? "warn" : "good", `${view.behindSeconds.toFixed(1)} s behind`]
    : ["good", "up to date"];
  if (pill.textContent !== text) pill.textContent = text;
  pill.className = `pill ${kind}`;
}

function showFigures(overview) {
  for (const place of document.querySelectorAll("[data-figure]")) {
    const value = place.dataset.figure.split(".").reduce((part, name) => part?.[name], overview);
    place.textContent = typeof value === "number" ? value.toLocaleString("en").replaceAll(",", "\u202f") : "–";
  }
}

async function refresh() {
  try {
    if (document.getElementById("figures")) {
      const overview = await ask("/api/v1/overview");
      showFigures(overview);
      showFreshness(overview.view);
    } else {
      showFreshness(await ask("/api/v1/status"));
    }
  } catch (error) {
    const status = error.message === "401" ? "logged out" : "the console does not answer";
    showFreshness({ trouble: status });
  }
}

function onKey(event) {
  const typing = event.target.closest("input, textarea, select");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const search = document.getElementById("search");
    if (search) { event.preventDefault(); search.focus(); search.select(); } else location.href = "/pending";
  } else if (event.key === "n") {
    const create = document.querySelector("nav a.new");
    if (create) create.click();
  } else if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll("table.list td.id a")];
    const at = links.indexOf(document.activeElement);
    const next = event.key === "j" ? Math.min(at + 1, links.length - 1) : Math.max(at - 1, 0);
    links[next]?.focus();
  }
}

document.getElementById("zone").textContent = zone === "UTC" ? "UTC" : `${zone}, UTC beside`;
showTimes(document);
addPickers();
document.addEventListener("keydown", onKey);
if (!location.pathname.startsWith("/login")) {
  setInterval(() => { if (!document.hidden) refresh(); }, 2000);
}
