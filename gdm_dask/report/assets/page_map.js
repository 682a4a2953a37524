// The clustered heat map: correlations of every pair of supports, on a canvas that answers to pointer and keys.
const STRIP = 10; // class of each support, to the left
const SIZES = 34; // size of each group, above
const NAMED = 30; // a map of at most so many supports shows their names, to the right

function rgb(name) {
  const hex = css(name).replace('#', '');
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
}
function correlationColors(largest) {
  const [low, mid, high] = ['--zero-fill', '--mid', '--one-fill'].map(rgb);
  return (value) => {
    const t = Math.min(1, Math.abs(value) / largest);
    const end = value < 0 ? low : high;
    return mid.map((channel, c) => Math.round(channel + (end[c] - channel) * t));
  };
}

function showMap() {
  const map = report.map;
  if (!map) return;
  const n = map.order.length;
  const some = n < nSupports ? `the ${whole(n)} strongest of ${whole(nSupports)} supports` : `the ${whole(n)} supports`;
  const body = show('map', 'Map', `Correlations among ${some}, with similar ones side by side. ${report.parameters.tau > 0 ? `By construction none reaches ${digits(1 - report.parameters.tau)}${supports.note ? ', but for included features and those of one variable' : ''}; blocks of colour are related signals.` : 'This run has no limit on correlations.'} Above: sizes of the groups${sides.length === 2 ? '; at the left: what each speaks for' : ''}.`);
  const value = (i, j) => (i === j ? 100 : i > j ? map.percent[(i * (i - 1)) / 2 + j] : map.percent[(j * (j - 1)) / 2 + i]);
  const largest = Math.max(1, map.percent.reduce((most, x) => Math.max(most, Math.abs(x)), 0));
  const zoom = el('select', { id: 'zoom', onchange: () => draw() }, ['1', '2', '4'].map((times) => el('option', { value: times }, `${times} ×`)));
  const canvas = el('canvas', { tabindex: 0, role: 'img', 'aria-label': `Heat map of the correlations among ${some}. Move with the arrow keys, open a group with Enter.` });
  const chosen = el('p', { class: 'chosen', role: 'status', 'aria-live': 'polite' }, 'Point at a cell, or move with the arrow keys.');
  const box = el('div', { class: 'mapbox' }, canvas);
  const left = el('div', {}, el('div', { class: 'tools' }, el('label', { for: 'zoom' }, 'Zoom'), zoom, mapLegend(largest)), box, chosen);
  const card = el('div', { class: 'card atlas' }, left, nearestPairs(map, value));
  body.append(card);
  const state = { cell: 1, at: null, picture: null };

  function draw() {
    const cellBeside = (names) => Math.max(1, Math.min(56, (Math.min(box.clientWidth - STRIP - 4 - names, 720) * Number(zoom.value)) / n));
    state.names = n <= NAMED ? Math.min(180, Math.floor(box.clientWidth * 0.3)) : 0;
    if (cellBeside(state.names) < 12) state.names = 0; // no room for a line of text
    state.cell = cellBeside(state.names);
    state.picture = paint(n, value, correlationColors(largest));
    refresh();
  }
  function refresh() {
    const side = Math.round(state.cell * n);
    const scale = devicePixelRatio || 1;
    canvas.width = (side + STRIP + 3 + state.names) * scale;
    canvas.height = (side + SIZES + 3) * scale;
    canvas.style.width = `${side + STRIP + 3 + state.names}px`;
    canvas.style.height = `${side + SIZES + 3}px`;
    const pen = canvas.getContext('2d');
    pen.scale(scale, scale);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(state.picture, STRIP, SIZES, side, side);
    margins(pen, map.order, state.cell);
    if (state.names) map.order.forEach((k, i) => label(pen, supportName(k), STRIP + side + 8, SIZES + (i + 0.5) * state.cell, state.names - 8));
    if (state.at) mark(pen, state.at, state.cell, side);
  }
  function point(i, j, x, y) {
    state.at = [i, j];
    refresh();
    const [a, b] = [map.order[i], map.order[j]];
    const text = i === j ? groupText(a) : `ρ = ${minus((value(i, j) / 100).toFixed(2))}`;
    chosen.replaceChildren(named(supportName(a).slice(0, 200)), ...(i === j ? [] : [' and ', named(supportName(b).slice(0, 200))]), `: ${text}`);
    if (x !== undefined) showTip(x, y, named(supportName(a)), ...(i === j ? [] : [named(supportName(b))]), el('p', {}, text));
  }
  const cellAt = (event) => {
    const frame = canvas.getBoundingClientRect();
    const j = Math.floor((event.clientX - frame.left - STRIP) / state.cell);
    const i = Math.floor((event.clientY - frame.top - SIZES) / state.cell);
    return i >= 0 && j >= 0 && i < n && j < n ? [i, j] : null;
  };
  canvas.addEventListener('pointermove', (event) => { const at = cellAt(event); if (at) point(...at, event.clientX, event.clientY); else hideTip(); });
  canvas.addEventListener('pointerleave', hideTip); // the cell stays chosen, for the keys
  canvas.addEventListener('click', (event) => { const at = cellAt(event); if (at) openGroup(map.order[at[0]]); });
  canvas.addEventListener('keydown', (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const [i, j] = state.at ?? [0, 0];
    if (!step && event.key !== 'Enter') return;
    event.preventDefault(); // or the same key press would close what it opened
    if (!step) return openGroup(map.order[i]);
    const inside = (x) => Math.min(n - 1, Math.max(0, x));
    point(inside(i + step[0]), inside(j + step[1]));
  });
  responsive(box, draw);
}
function nearestPairs(map, value) {
  const n = map.order.length;
  const pairs = [];
  for (let i = 0; i < n; i++) for (let j = 0; j < i; j++) pairs.push([Math.abs(value(i, j)), i, j]);
  pairs.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const rows = pairs.slice(0, 8).map(([, i, j]) => el('li', {}, el('span', {}, groupButton(map.order[i]), groupButton(map.order[j])), minus((value(i, j) / 100).toFixed(2))));
  return el('div', {}, el('h3', {}, 'Nearest pairs'), el('ol', {}, rows));
}
const groupText = (k) => (groups ? plural(groups.size[k], 'member') : 'support') + `, weight ${signed(supports.weight[k])}`;

function paint(n, value, color) {
  const picture = el('canvas', { width: n, height: n });
  const pen = picture.getContext('2d');
  const image = pen.createImageData(n, n);
  const none = rgb('--line');
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < n; j++) image.data.set([...(i === j ? none : color(value(i, j))), 255], 4 * (i * n + j));
  }
  pen.putImageData(image, 0, 0);
  return picture;
}
function margins(pen, order, cell) {
  const fills = [classFill(0), classFill(1)];
  const most = groups ? Math.log(Math.max(2, ...order.map((k) => groups.size[k]))) : 1;
  order.forEach((k, i) => {
    pen.fillStyle = fills[toneOf(k)];
    pen.fillRect(0, SIZES + i * cell, STRIP - 4, Math.max(1, cell - 0.5));
    const height = groups ? (Math.log(groups.size[k]) / most) * (SIZES - 6) : 0;
    pen.fillRect(STRIP + i * cell, SIZES - 3 - height, Math.max(1, cell - 0.5), Math.max(1, height));
  });
}
function label(pen, name, x, y, room) {
  const characters = Array.from(visibleEnds(name).slice(0, 200));
  pen.font = `12px ${css('--sans')}`;
  pen.fillStyle = css('--soft');
  pen.textBaseline = 'middle';
  let text = characters.join('');
  while (characters.length > 1 && pen.measureText(text).width > room) {
    characters.pop();
    text = `${characters.join('')}…`;
  }
  pen.fillText(text, x, y);
}
function mark(pen, [i, j], cell, side) {
  pen.strokeStyle = css('--ink');
  pen.lineWidth = 1;
  pen.globalAlpha = 0.35;
  pen.strokeRect(STRIP, SIZES + i * cell, side, cell);
  pen.strokeRect(STRIP + j * cell, SIZES, cell, side);
  pen.globalAlpha = 1;
  pen.lineWidth = 2;
  pen.strokeRect(STRIP + j * cell, SIZES + i * cell, cell, cell);
}
function mapLegend(largest) {
  const steps = 21;
  const bars = Array.from({ length: steps }, (_, k) => {
    const t = (2 * k) / (steps - 1) - 1;
    const end = t < 0 ? '--zero-fill' : '--one-fill';
    return svg('rect', { x: 48 + 6 * k, y: 0, width: 6, height: 14, fill: `color-mix(in srgb, var(${end}) ${Math.round(100 * Math.abs(t))}%, var(--mid))` });
  });
  const limit = (largest / 100).toFixed(2);
  return svg('svg', { width: 224, height: 16, role: 'img', 'aria-label': `Colours from a correlation of minus ${limit} to plus ${limit}` },
    svg('text', { x: 42, y: 12, 'text-anchor': 'end' }, `−${limit}`), bars, svg('text', { x: 180, y: 12 }, `+${limit}`));
}
