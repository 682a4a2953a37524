// The supports as a table, and as dots by weight and group size.
const firstCut = (k) => (supports.scores[k].length ? supports.scores[k][0][0] : null);
const firstScore = (k) => (supports.scores[k].length ? Math.abs(supports.scores[k][0][1]) : null);
function scoreCell(k) {
  const scores = supports.scores[k];
  if (!scores.length) return '–';
  const largest = Math.max(...scores.map(([, score]) => Math.abs(score)));
  const width = Math.min(80, 5 * scores.length);
  const bars = scores.slice(0, 16).map(([, score], i) => {
    const height = Math.max(1, (Math.abs(score) / largest) * 14);
    return svg('rect', { x: i * 5, y: 14 - height, width: 4, height, fill: 'var(--soft)' });
  });
  const label = scores.map(([cut, score]) => `cut ${cut}: ${signed(score)}`).join('; ');
  return el('span', { class: 'with-bar', title: label }, digits(firstScore(k), 3, true), scores.length > 1 ? svg('svg', { width, height: 14, role: 'img', 'aria-label': label }, bars) : null);
}
function frequencyCell(k) {
  const share = report.data.class_counts.map((count, c) => (count ? supports.frequency[c][k] / count : 0));
  const label = share.map((x, c) => `${percent(x)} of ${report.data.classes[c]}`).join(', ');
  const bars = share.map((x, c) => svg('rect', { x: 0, y: c * 6, width: Math.max(1, 40 * x), height: 5, rx: 1, fill: `var(${c ? '--one-fill' : '--zero-fill'})` }));
  if (bars.length > 3) return el('span', { title: label }, whole(frequencyOf(k)));
  return el('span', { class: 'with-bar', title: label }, whole(frequencyOf(k)), svg('svg', { width: 40, height: 6 * bars.length - 1, role: 'img', 'aria-label': label }, bars));
}

function outputBars(k) {
  const weights = supports.output_weights.map((row) => row[k]);
  const largest = Math.max(...weights.map(Math.abs)) || 1;
  const label = weights.map((weight, s) => `${sides[s]}: ${signed(weight)}`).join('; ');
  const step = Math.max(2, Math.min(6, Math.floor(160 / weights.length)));
  const bars = weights.map((weight, s) => {
    const height = Math.max(1, (Math.abs(weight) / largest) * 9);
    return svg('rect', { x: s * step, y: weight > 0 ? 10 - height : 10, width: step - 1, height, fill: `var(${weight > 0 ? '--one-fill' : '--zero-fill'})` });
  });
  return el('span', { title: label }, svg('svg', { width: step * weights.length, height: 20, role: 'img', 'aria-label': label }, bars));
}

const largestWeight = Math.max(...supports.weight.map(Math.abs));
function weightCell(k) { // the norm over several outputs has no sign
  const weight = supports.weight[k];
  return supports.output_weights ? digits(weight, 3, true) : el('span', { class: 'with-bar' }, signed(weight), signedBar(weight, largestWeight));
}

function supportColumns() {
  const columns = [
    { label: 'Rank', number: true, first: 'up', value: (k) => k, cell: (k) => whole(k + 1) },
    { label: 'Support', header: true, value: (k) => supportName(k), cell: (k) => groupButton(k) },
    { label: 'Weight', number: true, value: (k) => supports.weight[k], cell: weightCell, tip: `Of the normalised feature${supports.output_weights ? '; the norm over all outputs' : ''}` },
    { label: 'Speaks for', value: sideName, cell: (k) => sideLabel(supports.side[k]) },
  ];
  if (supports.note) columns.splice(2, 0, { label: 'Note', value: (k) => supports.note[k], cell: (k) => (supports.note[k] ? named(supports.note[k]) : ''), tip: 'Included: a support by demand; a name: the variable with which it entered' });
  if (supports.output_weights) columns.push({ label: 'Weights', value: sideName, cell: outputBars, tip: 'Its weight for each of the outputs, in their order' });
  if (supports.frequency && supports.feature.some((_, k) => frequencyOf(k) < report.data.n_samples)) columns.push({ label: 'Samples with it', number: true, value: frequencyOf, cell: frequencyCell, tip: 'Samples in which it is not zero; bars: share of each class' });
  columns.push({ label: 'Cut', number: true, first: 'up', value: firstCut, cell: (k) => String(firstCut(k) ?? '–'), tip: 'The first cut that holds it' });
  columns.push({ label: 'Score', number: true, value: firstScore, cell: scoreCell, tip: 'Its score in that cut; bars: scores in all cuts that hold it' });
  if (groups) columns.push({ label: 'Group', number: true, value: (k) => groups.size[k], cell: (k) => whole(groups.size[k]), tip: 'Members, the support included' });
  if (report.importance) columns.push({ label: 'Importance', number: true, value: (k) => importanceOf(k), cell: (k) => minus((100 * importanceOf(k)).toFixed(2)), tip: `Points of ${scoreName} lost when its group is permuted` });
  if (report.stability) columns.push({ label: 'Found again', number: true, value: (k) => report.stability.group_frequency[k], cell: (k) => percent(report.stability.group_frequency[k], 0), tip: 'Share of subsamples that found its group' });
  return columns;
}
const importanceOf = (k) => (report.importance.group ?? report.importance.support)[k];

function showSupports() {
  const body = show('supports', 'Supports');
  body.append(dataTable({ caption: 'supports', unit: 'support', n: nSupports, columns: supportColumns(), pageSize: 15, sort: 0, down: false, text: (k) => `${supportName(k)} ${supports.feature[k]} ${sideName(k)}` }));
}

function showSizes() {
  if (!groups || nSupports < 3 || Math.max(...groups.size) < 2) return;
  const body = show('sizes', null);
  const plot = el('div', { class: 'plot' });
  body.append(el('div', { class: 'card' }, sides.length === 2 ? el('ul', { class: 'legend' }, [0, 1].map((s) => el('li', {}, sideLabel(s)))) : '', plot));
  responsive(plot, (width) => drawSizes(plot, width));
}
function drawSizes(plot, width) {
  const frame = { left: 58, top: 28, right: width - 16, bottom: 290 };
  const weights = supports.weight.map(Math.abs);
  const most = Math.log10(Math.max(...groups.size));
  const x = linear(0, Math.max(...weights), frame.left, frame.right);
  const y = linear(0, Math.max(1, most), frame.bottom, frame.top);
  const powers = Array.from({ length: Math.floor(Math.max(1, most)) + 1 }, (_, k) => k);
  const between = most < 2 ? powers.slice(0, -1).flatMap((k) => [k + Math.log10(2), k + Math.log10(5)]) : [];
  const chart = svg('svg', { width, height: 334, role: 'img', 'aria-label': 'Supports by weight and size of their groups; the table of supports has the numbers' });
  chart.append(...axes(frame, x, y, { xTicks: ticks(0, Math.max(...weights), width / 90), xFormat: (v) => digits(v), yTicks: [...powers, ...between], yFormat: (v) => whole(Math.round(10 ** v)), xLabel: '|weight|', yLabel: 'members' }));
  const points = weights.map((weight, k) => [x(weight), y(Math.log10(groups.size[k]))]);
  const marks = points.map(([cx, cy], k) => (toneOf(k)
    ? svg('rect', { x: cx - 3.5, y: cy - 3.5, width: 7, height: 7, fill: css('--one-fill'), 'fill-opacity': 0.7 })
    : svg('circle', { cx, cy, r: 4, fill: css('--zero-fill'), 'fill-opacity': 0.7 })));
  chart.append(...marks);
  const nearest = (event) => {
    const box = chart.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    let best = 400, found = null;
    points.forEach(([cx, cy], k) => { const d = (cx - px) ** 2 + (cy - py) ** 2; if (d < best) [best, found] = [d, k]; });
    return found;
  };
  chart.addEventListener('pointermove', (event) => {
    const k = nearest(event);
    chart.style.cursor = k === null ? 'default' : 'pointer';
    if (k === null) hideTip();
    else showTip(event.clientX, event.clientY, named(supportName(k)), el('p', {}, `weight ${signed(supports.weight[k])}, ${plural(groups.size[k], 'member')}`));
  });
  chart.addEventListener('pointerleave', hideTip);
  chart.addEventListener('click', (event) => { const k = nearest(event); if (k !== null) openGroup(k); });
  plot.replaceChildren(chart);
}
