"""The HTML, CSS and JavaScript of the page that `attention_page` creates."""

BODY = """
<p>Every token (left) attends to the tokens on the right; the weights of a token add up to 100%. Choose a block and a
head, or a thumbnail below. Point at a token, or move to it with the tab key, to see its weights alone.</p>
<section id="head-view">
<p class="controls"><label id="set-label">Attention <select id="set"></select></label>
<label>Block <select id="block"></select></label>
<span>Head</span> <span id="heads" role="group" aria-label="Head"></span></p>
<svg id="lines" role="group" aria-label="Lines between tokens"></svg>
<p id="said" aria-live="polite"></p>
</section>
<section><h2>All heads</h2>
<p class="note">Rows are blocks, and columns are heads. A row of each square is a token that attends,
a column one that is attended to. Shades follow the square root of the weight, so that small weights show.</p>
<p class="scale note"><span>0%</span><canvas id="scale" width="64" height="1"></canvas><span>100%</span></p>
<div id="grid"></div>
</section>
<noscript><p>This page needs JavaScript to draw.</p></noscript>
"""

STYLE = """
.controls { display: flex; flex-wrap: wrap; gap: .4rem .6rem; align-items: center; }
#heads { display: flex; flex-wrap: wrap; gap: .25rem; }
#lines { width: 100%; height: auto; display: block; }
#lines text { font-size: 13px; cursor: default; }
#lines .token { cursor: pointer; } #lines .token:focus { outline: none; }
#lines .token rect { fill: transparent; } #lines .token.chosen rect, #lines .token:focus rect { fill: var(--line); }
#lines line { stroke: var(--blue); stroke-width: 2; }
#said { min-height: 3em; font-family: var(--mono); font-size: .9rem; }
#grid { display: grid; gap: 2px; align-items: center; }
#grid span { font-size: .75rem; color: var(--muted); text-align: center; overflow: hidden; }
#grid button { padding: 0; border: 2px solid transparent; border-radius: 2px; background: none; line-height: 0;
  min-width: 0; max-width: 5rem; }
#grid button[aria-pressed="true"] { border-color: var(--orange); background: none; }
#grid canvas { width: 100%; aspect-ratio: 1; image-rendering: pixelated; }
.scale { display: flex; gap: .5rem; align-items: center; }
.scale canvas { width: 10rem; height: .8rem; border: 1px solid var(--line); }
"""

SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);
const sets = data.sets.map(set => ({...set, values: Uint8Array.from(atob(set.values), c => c.charCodeAt(0))}));
let chosen = {set: 0, block: data.block, head: data.head, token: null};

function weights(set, block, head) {
  const [, heads, queries, keys] = set.shape, size = queries * keys, start = (block * heads + head) * size;
  return (query, key) => set.values[start + query * keys + key] / 255;
}
function colors() {  // of no weight and of the whole weight, as numbers
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = ["--page", "--blue"].map(name => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color.match(/[0-9.]+/g).slice(0, 3).map(Number);
  });
  probe.remove();
  return found;
}
function paint(canvas, width, height, value) {
  const [none, whole] = colors(), context = canvas.getContext("2d");
  canvas.width = width; canvas.height = height;
  const image = context.createImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    const share = Math.sqrt(value(Math.floor(i / width), i % width));
    for (let part = 0; part < 3; part++) image.data[4 * i + part] = none[part] + share * (whole[part] - none[part]);
    image.data[4 * i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}
function part(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return element;
}
const percent = value => value >= 0.995 ? "100%" : value < 0.005 ? "<1%" : Math.round(100 * value) + "%";

function drawLines() {
  const svg = at("lines"), set = sets[chosen.set], weight = weights(set, chosen.block, chosen.head);
  const width = Math.max(280, svg.parentElement.clientWidth - 26), step = 22, side = Math.min(260, 0.36 * width);
  const rows = Math.max(set.queries.length, set.keys.length), height = rows * step + 24;
  const room = Math.floor((side - 10) / 8);  // characters of 13 pixels in a monospaced font
  const short = token => token.length > room ? token.slice(0, room - 1) + "\u2026" : token;
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.append(part("text", {x: side - 6, y: 12, "text-anchor": "end"}, "from"));
  svg.append(part("text", {x: width - side + 6, y: 12}, "to"));
  const y = place => 24 + place * step + step / 2;
  const lines = part("g", {});
  set.queries.forEach((_, query) => set.keys.forEach((_, key) => {
    const opacity = weight(query, key);
    if (opacity < 0.01) return;
    const line = part("line", {x1: side, y1: y(query), x2: width - side, y2: y(key), "stroke-opacity": opacity});
    line.dataset.query = query; line.dataset.key = key;
    lines.append(line);
  }));
  svg.append(lines);
  for (const [name, tokens] of [["query", set.queries], ["key", set.keys]]) tokens.forEach((token, place) => {
    const left = name === "query", label = `${left ? "from" : "to"} ${token}`;
    const group = part("g", {class: "token", tabindex: 0, role: "button", "aria-label": label});
    group.append(part("rect", {x: left ? 0 : width - side, y: y(place) - step / 2, width: side, height: step, rx: 3}));
    const anchor = {x: left ? side - 6 : width - side + 6, y: y(place) + 4, "text-anchor": left ? "end" : "start"};
    group.append(part("text", anchor, short(token)));
    group.append(part("title", {}, token));
    const show = () => choose(name, place);
    for (const name of ["mouseenter", "focus", "click"]) group.addEventListener(name, show);
    for (const name of ["mouseleave", "blur"]) group.addEventListener(name, () => choose(null));
    group.dataset.side = name; group.dataset.place = place;
    svg.append(group);
  });
  choose(null);
}
function choose(side, place) {
  const set = sets[chosen.set], weight = weights(set, chosen.block, chosen.head);
  for (const line of at("lines").querySelectorAll("line"))
    line.style.display = side === null || Number(line.dataset[side]) === place ? "" : "none";
  for (const group of at("lines").querySelectorAll(".token"))
    group.classList.toggle("chosen", group.dataset.side === side && Number(group.dataset.place) === place);
  if (side === null) { at("said").textContent = `Block ${chosen.block}, head ${chosen.head}.`; return; }
  const others = side === "query" ? set.keys : set.queries, token = (side === "query" ? set.queries : set.keys)[place];
  const found = others.map((name, other) => [name, side === "query" ? weight(place, other) : weight(other, place)]);
  const best = found.filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]).slice(0, 5);
  const listed = best.map(([name, value]) => `${name} ${percent(value)}`).join(", ") || "nothing";
  at("said").textContent = side === "query" ? `${token} attends to ${listed}` : `${token} is attended to by ${listed}`;
}
function drawGrid() {
  const set = sets[chosen.set], [blocks, heads, queries, keys] = set.shape, grid = at("grid");
  grid.style.gridTemplateColumns = `2rem repeat(${heads}, minmax(0, 5rem))`;
  grid.replaceChildren(document.createElement("span"));
  const label = text => { const span = document.createElement("span"); span.textContent = text; grid.append(span); };
  for (let head = 0; head < heads; head++) label(head);
  for (let block = 0; block < blocks; block++) {
    label(block);
    for (let head = 0; head < heads; head++) {
      const button = document.createElement("button"), canvas = document.createElement("canvas");
      button.title = `block ${block}, head ${head}`; button.setAttribute("aria-label", button.title);
      button.dataset.block = block; button.dataset.head = head;
      button.addEventListener("click", () => { chosen.block = block; chosen.head = head; update();
        at("head-view").scrollIntoView({behavior: "smooth", block: "nearest"}); });
      paint(canvas, keys, queries, weights(set, block, head));
      button.append(canvas);
      grid.append(button);
    }
  }
  paint(at("scale"), 64, 1, (_, column) => column / 63);
}
function update() {
  const [blocks, heads] = sets[chosen.set].shape;
  chosen.block = Math.min(chosen.block, blocks - 1); chosen.head = Math.min(chosen.head, heads - 1);
  at("block").replaceChildren(...Array.from({length: blocks}, (_, i) => new Option(i, i, false, i === chosen.block)));
  at("heads").replaceChildren(...Array.from({length: heads}, (_, i) => {
    const button = document.createElement("button");
    button.textContent = i; button.setAttribute("aria-pressed", i === chosen.head);
    button.addEventListener("click", () => { chosen.head = i; update(); at("heads").children[i].focus(); });
    return button;
  }));
  for (const button of at("grid").querySelectorAll("button")) {
    const {block, head} = button.dataset;
    button.setAttribute("aria-pressed", Number(block) === chosen.block && Number(head) === chosen.head);
  }
  drawLines();
}
at("set").replaceChildren(...sets.map((set, i) => new Option(set.name, i)));
at("set-label").hidden = sets.length < 2;
at("set").addEventListener("change", event => { chosen.set = Number(event.target.value); drawGrid(); update(); });
at("block").addEventListener("change", event => { chosen.block = Number(event.target.value); update(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawGrid);
let width = 0;
new ResizeObserver(() => { if (innerWidth !== width) { width = innerWidth; drawLines(); } }).observe(document.body);
drawGrid();
update();
"""
