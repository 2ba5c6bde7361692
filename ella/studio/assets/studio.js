"use strict";
const byId = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=ella-token]").content;
const KEYS = { ArrowLeft: 0, ArrowRight: 1, ArrowUp: 2, p: 3, d: 4, t: 5, Enter: 6 };
const PAUSE = 250;
let shown = null;
let timer = null;
let waiting = 0;
let last = Promise.resolve();

// One request at a time, in the order they were made.
function ask(what, request = {}) {
  waiting += 1;
  last = last.then(() => send(what, request)).then(() => { waiting -= 1; });
}

async function send(what, request) {
  try {
    const answer = await fetch("do/" + what, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Ella-Token": token },
      body: JSON.stringify(request),
    });
    if (!answer.ok) throw new Error(await answer.text());
    const found = await answer.json();
    byId("error").textContent = found.error || "";
    if (found.error) stop();
    else show(found);
  } catch (error) {
    stop();
    byId("error").textContent = "The studio does not answer: " + error.message;
  }
}

function element(tag, text, className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

function show(now) {
  const isNew = !shown || shown.name !== now.name;
  if (!shown || shown.names.length !== now.names.length) {
    byId("name").replaceChildren(...now.names.map((name) => element("option", name)));
  }
  byId("name").value = now.name;
  byId("seed").value = now.seed;
  if (isNew || shown.mission !== now.mission) byId("mission").value = now.mission;
  byId("picture").src = now.picture;
  byId("clock").textContent = `step ${now.step} of ${now.max_steps}`;
  byId("carrying").textContent = now.carrying ? `carrying the ${now.carrying}` : "";
  byId("outcome").textContent = now.outcome;
  byId("agent").textContent = `Acting: ${now.agent}.`;
  byId("judged").textContent = now.low_level.length
    ? `Judged by ${now.judged_by}.`
    : "This task has no low-level instructions.";
  byId("total").textContent = now.low_level.length ? `bonus so far ${now.total}` : "";
  byId("rows").replaceChildren(...now.low_level.map(row));
  byId("events").replaceChildren(...now.events.map(event));
  byId("events").scrollTop = byId("events").scrollHeight;
  shown = now;
  if (now.outcome) stop();
}

function row(low) {
  const classes = [low.relevant ? "relevant" : "", low.paid ? "paid" : ""];
  const made = element("tr", "", classes.join(" ").trim());
  const marks = [low.completed ? "✓" : "", low.paid ? "✓" : ""];
  made.append(...[low.text, low.relevance.toFixed(2), ...marks].map((text) => element("td", text)));
  return made;
}

function event(happened) {
  const bonus = happened.bonus ? ` (${happened.bonus > 0 ? "+" : ""}${happened.bonus})` : "";
  return element("li", `${happened.step}  ${happened.text}${bonus}`, happened.kind);
}

function stop() {
  clearInterval(timer);
  timer = null;
  byId("play").setAttribute("aria-pressed", "false");
  byId("play").textContent = "Play";
}

function play() {
  if (timer) return stop();
  if (shown && shown.outcome) ask("restart");
  timer = setInterval(() => { if (!waiting) ask("step"); }, PAUSE);
  byId("play").setAttribute("aria-pressed", "true");
  byId("play").textContent = "Pause";
}

function level(seed) {
  stop();
  ask("level", { seed });
}

byId("play").addEventListener("click", play);
byId("step").addEventListener("click", () => { stop(); ask("step"); });
byId("restart").addEventListener("click", () => { stop(); ask("restart"); });
byId("next-level").addEventListener("click", () => level(shown.seed + 1));
byId("seed").addEventListener("change", () => level(Math.trunc(Number(byId("seed").value)) || 0));
byId("name").addEventListener("change", () => {
  stop();
  ask("choose", { name: byId("name").value });
  byId("name").blur();
});
byId("instruct").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  stop();
  ask("instruct", { text: byId("mission").value });
  byId("mission").blur();
});
document.addEventListener("keydown", (pressed) => {
  if (["INPUT", "SELECT", "BUTTON"].includes(pressed.target.tagName)) return;
  if (pressed.ctrlKey || pressed.metaKey || pressed.altKey) return;
  if (pressed.key === " ") {
    stop();
    ask("step");
  } else if (pressed.key in KEYS) {
    stop();
    ask("step", { action: KEYS[pressed.key] });
  } else {
    return;
  }
  pressed.preventDefault();
});
ask("look");
