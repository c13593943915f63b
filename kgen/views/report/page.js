// Draws the charts one after another, sorts tables, and answers the choices of plan and parameters.
const page = JSON.parse(document.getElementById("page").textContent);
const options = {
  renderer: "svg",
  actions: false,
  config: page.config,
  tooltip: { theme: "custom", disableDefaultStyle: true },
};

// Draws one chart in `element`: `params` sets its parameters, `axes` names its axes, `lines` counts its lines.
async function draw(element, name, datasets, { params = {}, axes = {}, lines = 1 } = {}) {
  const spec = structuredClone(page.charts[name]);
  spec.height = (spec.height.step ?? spec.height) * lines;
  spec.datasets = datasets;
  for (const param of spec.params ?? []) param.value = params[param.name];
  for (const [channel, title] of Object.entries(axes)) spec.encoding[channel].title = title;
  (await views.get(element))?.finalize();
  await new Promise((done) => setTimeout(done)); // lets the browser paint and answer in between
  const drawn = window.vegaEmbed(element, spec, options);
  views.set(element, drawn);
  await drawn;
}
const views = new WeakMap();

// Rows name candidates; each row gets the description of its candidate before anything is drawn. A baseline is PyTorch.
function describe(value, candidates) {
  if (value === null || typeof value !== "object") return;
  if ("candidate" in value) Object.assign(value, candidates[value.candidate] ?? { plan: "PyTorch", params: "-" });
  for (const inner of Object.values(value)) describe(inner, candidates);
}

// The range of speedups of some groups and the line at 1, with room on both sides: one range for charts side by side.
function range(groups) {
  const low = Math.min(1, ...groups.map((group) => group.low));
  const high = Math.max(1, ...groups.map((group) => group.best));
  const room = 0.03 * (high - low) || 0.01;
  return { low: low - room, high: high + room };
}

function node(name, text = "", children = []) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
}

const names = (data) => data.plans.map((plan) => plan.name);

function drawGroups(element, name, groups, params = range(groups)) {
  return draw(element, name, { groups }, { params, lines: groups.length });
}

async function drawParameters(element, plan) {
  const between = range(plan.parameters.flatMap((parameter) => parameter.groups));
  element.replaceChildren();
  for (const parameter of plan.parameters) {
    const chart = node("div");
    chart.className = "chart";
    const share = node("span", `${Math.round(100 * parameter.share)}%`);
    element.append(node("div", "", [node("h4", parameter.name, [share]), node("p", parameter.meaning), chart]));
    await drawGroups(chart, "groups", parameter.groups, between);
  }
}

async function drawHeat(element, plan, first, second) {
  const [lower, upper] = [Math.min(first, second), Math.max(first, second)];
  const pair = plan.pairs.find((pair) => pair.first === lower && pair.second === upper);
  const cells = first < second ? pair.cells : pair.cells.map((cell) => ({ ...cell, x: cell.y, y: cell.x }));
  const place = (parameter, value) => plan.parameters[parameter].groups.findIndex((group) => group.name === value);
  cells.sort((a, b) => place(first, a.x) - place(first, b.x) || place(second, a.y) - place(second, b.y));
  const speedups = cells.map((cell) => cell.speedup);
  const middle = (Math.min(...speedups) + Math.max(...speedups)) / 2;
  const axes = { x: plan.parameters[first].name, y: plan.parameters[second].name };
  const lines = new Set(cells.map((cell) => cell.y)).size;
  await draw(element, "heat", { cells }, { params: { middle }, axes, lines });
}

// The part of a section with the choices of plan and parameters.
async function drawChoices(box, plans) {
  const [plan, first, second] = ["plan", "first", "second"].map((name) => box.querySelector(`[data-choose=${name}]`));
  const [multiples, heat] = ["parameters", "heat"].map((name) => box.querySelector(`[data-figure=${name}]`));
  const chosen = () => plans[plan.value];
  const drawPair = () => drawHeat(heat, chosen(), Number(first.value), Number(second.value));
  const drawPlan = async () => {
    const names = chosen().parameters.map((parameter) => parameter.name);
    for (const [place, select] of [first, second].entries()) {
      select.replaceChildren(...names.map((name, value) => new Option(name, value, false, value === place)));
    }
    await drawParameters(multiples, chosen());
    if (names.length > 1) await drawPair();
    else heat.replaceChildren(node("p", "This plan has one parameter only."));
  };
  // A parameter is never paired with itself: the two change places.
  const swap = (changed, other) => {
    if (changed.value === other.value) other.value = changed.dataset.before;
    for (const select of [first, second]) select.dataset.before = select.value;
    return drawPair();
  };
  plan.addEventListener("change", drawPlan);
  first.addEventListener("change", () => swap(first, second));
  second.addEventListener("change", () => swap(second, first));
  await drawPlan();
  for (const select of [first, second]) select.dataset.before = select.value;
}

function drawReached(element, name, data, lines) {
  return draw(element, name, { roofs: data.roofs, reached: data.reached }, { params: { plans: names(data) }, lines });
}

function drawCounts(element, counts) {
  return draw(element, "counts", { counts }, { lines: counts.length });
}

// The figures of a section by name, each with the rows that it draws.
const figures = {
  error: (element, data) => {
    const { points, limits, beyond } = data;
    return draw(element, "error", { points, limits, beyond }, { params: { plans: names(data) } });
  },
  progress: (element, data) => draw(element, "progress", { tried: data.tried, steps: data.steps }),
  plans: (element, data) => drawGroups(element, "plans", data.plans),
  roofline: (element, data) => drawReached(element, "roofline", data, 1),
  bandwidth: (element, data) => drawReached(element, "bandwidth", data, data.reached.length),
  failures: (element, data) => drawCounts(element, data.failures),
  rejections: (element, data) => drawCounts(element, data.rejections),
};

// A click on a heading sorts by its column: first the largest number, or the first word. Another click reverses it.
function sortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column, number) => {
    const cell = row.cells[column];
    return number ? (cell.dataset.value === "" ? -Infinity : Number(cell.dataset.value)) : cell.textContent.trim();
  };
  for (const [column, head] of heads.entries()) {
    const number = head.dataset.kind === "number";
    head.querySelector("button")?.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const ascending = before ? before === "descending" : !number;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const compare = (a, b) => (number ? a - b : a.localeCompare(b));
      const sorted = [...body.rows].sort((a, b) => compare(value(a, column, number), value(b, column, number)));
      body.append(...(ascending ? sorted : sorted.reverse()));
    });
  }
}

async function drawPart(part) {
  const data = page.sections[part.dataset.part];
  describe(data, data.candidates);
  for (const figure of part.querySelectorAll("figure[data-figure]")) {
    await figures[figure.dataset.figure](figure.querySelector(".chart"), data);
  }
  const choices = part.querySelector("[data-parameters]");
  if (choices) await drawChoices(choices, data.parameters);
}

// All problems together: a line for each of them, and the curve of fast_p.
async function drawSuite() {
  const { scored, curve, marked } = page.suite ?? {};
  for (const figure of document.querySelectorAll("[data-suite] figure")) {
    const figures = { problems: [{ scored }, scored.length], fast: [{ curve, marked }, 1] };
    const [datasets, lines] = figures[figure.dataset.figure];
    await draw(figure.querySelector(".chart"), figure.dataset.figure, datasets, { lines });
  }
}

// The distance of a part from the window in pixels; 0 where it is visible.
function distance(part) {
  const { top, bottom } = part.getBoundingClientRect();
  return Math.max(top - window.innerHeight, -bottom, 0);
}

// Draws the visible part first, then the nearest one.
async function drawParts() {
  await drawSuite();
  const waiting = [...document.querySelectorAll("[data-part]")];
  while (waiting.length) {
    waiting.sort((a, b) => distance(a) - distance(b));
    await drawPart(waiting.shift());
  }
  document.documentElement.dataset.drawn = "yes";
}

document.querySelectorAll("table.sortable").forEach(sortable);
drawParts();
