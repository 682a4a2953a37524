// Elements, numbers and names. Text reaches the page as text nodes only: nothing in it is ever parsed as markup.
const report = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const locale = 'en';
const whole = (x) => x.toLocaleString(locale);
function digits(x, n = 3, zeros = false) {
  if (x === 0) return '0';
  if (Math.abs(x) < 1e-4) {
    const [front, power] = x.toExponential(n - 1).split('e');
    const raised = [...String(Number(power))].map((c) => (c === '-' ? '⁻' : '⁰¹²³⁴⁵⁶⁷⁸⁹'[c])).join('');
    return `${zeros ? front : Number(front)}×10${raised}`;
  }
  return x.toLocaleString(locale, { maximumSignificantDigits: n, minimumSignificantDigits: zeros ? n : 1 });
}
const percent = (x, n = 1) => (x === 0 ? '0%' : `${(100 * x).toFixed(n)}%`);
const minus = (text) => text.replace('-', '−');
const signed = (x, n = 3) => (x > 0 ? '+' : '') + minus(digits(x, n, Math.abs(x) < 1000));
const correlation = (x) => (x < 0 ? '−' : '+') + Math.abs(x).toFixed(2);
const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? '' : 's'}`;
const seconds = (x) => (x < 0.0995 ? `${digits(1000 * x, 2)} ms` : x < 120 ? `${digits(x, 3)} s` : `${digits(x / 60, 3)} min`);
function bytes(x) {
  for (const [unit, scale] of [['TB', 1e12], ['GB', 1e9], ['MB', 1e6], ['kB', 1e3]]) {
    if (x >= scale) return `${digits(x / scale)} ${unit}`;
  }
  return `${whole(Math.round(x))} B`;
}

// Names may be anything: long, right to left, full of markup. They are isolated and wrapped, never trusted.
const named = (text) => el('bdi', { class: 'name' }, text === '' ? '(no name)' : text);
const supports = report.supports;
const groups = report.groups;
const nSupports = supports.feature.length;
const nameTable = new Map(supports.feature.map((feature, k) => [feature, supports.name[k]]));
if (report.names) {
  let feature = 0;
  report.names.steps.forEach((step, k) => nameTable.set((feature += step), report.names.name[k]));
}
function unnamed(feature) {
  if (!report.images) return `feature ${feature}`;
  const width = report.images.shape[1];
  return `pixel ${Math.floor(feature / width) + 1}, ${(feature % width) + 1}`;
}
const featureName = (feature) => (report.data.named ? nameTable.get(feature) ?? String(feature) : unnamed(feature));
const supportName = (k) => (report.data.named ? supports.name[k] : unnamed(supports.feature[k]));
const shownName = (text) => (report.data.named ? text : unnamed(Number(text))); // of a feature that is not in the table
const classOf = (weight) => (weight > 0 ? 1 : 0);
const sides = report.data.sides; // what supports can speak for: classes, small and large numbers, outputs
const toneOf = (k) => (sides.length === 2 ? supports.side[k] : 0); // more than two have one colour
const sideName = (k) => sides[supports.side[k]];
const marked = (names, k) => el('span', { class: names.length === 2 ? `class ${k ? 'one' : 'zero'}` : 'class' }, el('bdi', {}, names[k]));
const sideLabel = (s) => marked(sides, s);
const scoreName = report.data.kind === 'numbers' ? 'R²' : 'accuracy';
const classLabel = (k) => marked(report.data.classes, k);
const classFill = (k) => css(k ? '--one-fill' : '--zero-fill');
const frequencyOf = (k) => (supports.frequency ? supports.frequency.reduce((sum, row) => sum + row[k], 0) : null);

// Blanks at the ends of an n-gram belong to it; a chart would swallow them.
const visibleEnds = (text) => text.replace(/^ +| +$/g, (blanks) => '␣'.repeat(blanks.length));

// A section is shown when it has something to tell, with its place in the navigation.
function show(id, short, explanation) {
  const section = $(id);
  section.hidden = false;
  if (short) $('nav').firstElementChild.append(el('li', {}, el('a', { href: `#${id}` }, short)));
  if (explanation) section.querySelector('.explain').textContent = explanation;
  return section.querySelector('.body');
}

// What is drawn for a width or a theme is drawn again when they change.
const redraws = [];
function responsive(container, draw) {
  let last = 0;
  const again = (force) => {
    const width = Math.floor(container.clientWidth);
    if (width > 0 && (force || width !== last)) {
      last = width;
      draw(width);
    }
  };
  if (!container.closest('dialog')) redraws.push(() => again(true)); // what is in a dialog goes away with it
  new ResizeObserver(() => again(false)).observe(container);
  again(false);
}

const tip = $('tip');
function showTip(x, y, ...content) {
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? Math.max(4, x - box.width - 14) : x + 14;
  const top = y + 14 + box.height > innerHeight ? Math.max(4, y - box.height - 14) : y + 14;
  tip.style.left = `${left}px`;
  tip.style.top = `${top}px`;
}
const hideTip = () => { tip.hidden = true; };
