// What groups are worth, whether they come again, and what changed against another run.
function dotRows(container, options) {
  const height = options.rows.length * 26 + 44;
  responsive(container, (width) => {
    const left = Math.min(200, Math.floor(width * 0.36));
    const all = options.rows.flatMap((row) => row.values.filter((v) => v !== null));
    const x = linear(Math.min(0, ...all), Math.max(...all, options.full ?? 1e-6), left + 8, width - 20);
    const chart = svg('svg', { width, height, role: 'img', 'aria-label': options.label });
    const scale = ticks(Math.min(0, ...all), Math.max(...all, options.full ?? 1e-6), Math.max(2, width / 150));
    for (const tick of scale) {
      chart.append(svg('line', { class: 'axis', x1: x(tick), x2: x(tick), y1: 0, y2: height - 40 }), svg('text', { x: x(tick), y: height - 22, 'text-anchor': 'middle' }, options.format(tick)));
    }
    chart.append(svg('text', { x: width - 4, y: height - 4, 'text-anchor': 'end' }, options.axis));
    options.rows.forEach((row, k) => chart.append(dotRow(row, k * 26 + 14, x, left, options)));
    container.replaceChildren(chart);
  });
}
function dotRow(row, y, x, left, options) {
  const room = Math.max(6, Math.floor(left / 7.6));
  const name = visibleEnds(supportName(row.k));
  const label = svg('text', { x: left - 6, y: y + 4, 'text-anchor': 'end', class: 'strong' }, Array.from(name).length > room ? `${Array.from(name).slice(0, room - 1).join('')}…` : name);
  const marks = row.values.map((value, s) => value !== null && shape(options.series[s], x(value), y));
  const line = row.values.filter((v) => v !== null);
  const node = svg('g', {}, svg('rect', { x: 0, y: y - 13, width: x.range ?? '100%', height: 26, fill: 'transparent' }), label,
    svg('line', { x1: x(Math.min(...line)), x2: x(Math.max(...line)), y1: y, y2: y, stroke: css('--line'), 'stroke-width': 2 }), marks.filter(Boolean));
  node.addEventListener('pointermove', (event) => showTip(event.clientX, event.clientY, named(name), ...row.values.map((value, s) => value !== null && el('p', {}, `${options.series[s].name}: ${options.format(value, true)}`)).filter(Boolean)));
  node.addEventListener('pointerleave', hideTip);
  node.addEventListener('click', () => openGroup(row.k));
  node.style.cursor = 'pointer';
  return node;
}
function shape(series, x, y) {
  const common = { fill: series.hollow ? css('--card') : css(series.color), stroke: css(series.color), 'stroke-width': 2 };
  return series.square ? svg('rect', { x: x - 5.5, y: y - 5.5, width: 11, height: 11, ...common }) : svg('circle', { cx: x, cy: y, r: series.hollow ? 4.5 : 3.5, ...common });
}
const shapeLegend = (series) => el('ul', { class: 'legend' }, series.map((one) => el('li', {}, svg('svg', { width: 14, height: 14, 'aria-hidden': 'true' }, shape(one, 7, 7)), one.name)));

function showImportance() {
  const found = report.importance;
  if (!found) return;
  const fitted = report.accuracy.some((entry) => entry.kind === 'test') ? 'samples that the model was not fitted on' : 'the training samples, so the figures flatter the machine';
  const body = show('importance', 'Importance', `${scoreName === 'R²' ? 'R²' : 'Accuracy'} lost when the members of a group are permuted together, over ${plural(found.n_repeats, 'permutation')} of ${whole(found.n_samples)} samples; measured on ${fitted}.`);
  if (found.accuracy_members !== null) body.append(accuracyPair(found));
  const series = [{ name: 'support, model on supports only', color: '--zero-fill' }];
  if (found.group) series.push({ name: 'whole group, model on all members', color: '--one-fill', square: true }, { name: 'support alone, model on all members', color: '--one-fill', hollow: true });
  const order = supports.feature.map((_, k) => k).sort((a, b) => importanceOf(b) - importanceOf(a) || a - b).slice(0, 25);
  const rows = order.map((k) => ({ k, values: [found.support[k], ...(found.group ? [found.group[k], found.alone[k]] : [])] }));
  const plot = el('div', { class: 'plot' });
  body.append(el('div', { class: 'card' }, shapeLegend(series), plot));
  dotRows(plot, { rows, series, axis: `points of ${scoreName} lost`, format: (v, exact) => minus((100 * v).toFixed(exact ? 2 : 1)), label: `The ${rows.length} groups that matter most; the table of supports has the numbers` });
  if (found.group) body.append(el('p', { class: 'note' }, 'A hollow circle far left of its square: other members of the group stand in for the support, so tools that permute single features call it unimportant.'));
}
function accuracyPair(found) {
  const cut = found.members_per_group < facts.largest_group ? `, at most ${whole(found.members_per_group)} of each group` : '';
  return el('dl', { class: 'tiles' },
    tile('Supports only', percent(found.accuracy_supports, 2), plural(nSupports, 'feature')),
    tile('Supports and affiliated', percent(found.accuracy_members, 2), `${plural(found.n_members, 'feature')}${cut}`),
    tile('Difference', `${found.accuracy_members >= found.accuracy_supports ? '+' : ''}${points(found.accuracy_members - found.accuracy_supports)}`, 'from the affiliated features'));
}

function showStability() {
  const found = report.stability;
  if (!found) return;
  const body = show('stability', 'Stability', `${plural(found.n_repeats, 'fit')} on ${percent(found.fraction, 0)} of the samples each. A group counts as found again when at least ${percent(found.overlap, 0)} of the smaller group's members are in the other, whichever of them became the support.`);
  body.append(el('dl', { class: 'tiles' },
    tile('Groups, Jaccard', found.group_jaccard.toFixed(3), 'mean over pairs of fits'), tile('Groups, Kuncheva', found.group_kuncheva.toFixed(3), 'corrected for chance'),
    tile('Single supports, Jaccard', found.support_jaccard.toFixed(3), 'the very same features'), tile('Single supports, Kuncheva', found.support_kuncheva.toFixed(3), 'corrected for chance')));
  const series = [{ name: 'its group was found', color: '--one-fill', square: true }, { name: 'it was the support itself', color: '--zero-fill' }];
  const order = supports.feature.map((_, k) => k).slice(0, 30);
  const plot = el('div', { class: 'plot' });
  body.append(el('p'), el('div', { class: 'card' }, shapeLegend(series), plot));
  dotRows(plot, { rows: order.map((k) => ({ k, values: [found.group_frequency[k], found.support_frequency[k]] })), series, full: 1, axis: 'share of the fits', format: (v) => percent(v, 0), label: 'How often the strongest supports and their groups were found again; the table of supports has the numbers' });
  if (found.others.length) {
    body.append(el('h3', {}, 'Found in subsamples, but not in this run'), dataTable({ caption: 'groups found elsewhere', unit: 'group', n: found.others.length, pageSize: 8, text: (i) => shownName(found.others[i].name), columns: [
      { label: 'A support of it', header: true, value: (i) => found.others[i].name, cell: (i) => named(shownName(found.others[i].name)) },
      { label: 'Found', number: true, value: (i) => found.others[i].frequency, cell: (i) => percent(found.others[i].frequency, 0) },
      { label: 'Members', number: true, value: (i) => found.others[i].size, cell: (i) => whole(found.others[i].size) }] }));
  }
}

function showComparison() {
  const found = report.comparison;
  if (!found) return;
  const body = show('comparison', 'Comparison', `This run against ${found.name}: which supports came and went, and which features have another support speak for them.`);
  body.append(el('dl', { class: 'tiles' }, tile('Kept', whole(found.n_kept), `Jaccard ${found.jaccard.toFixed(3)}`), tile('Gained', whole(found.n_gained)), tile('Lost', whole(found.n_lost)), tile('Moved', whole(found.n_moved), 'features with another support')), el('p'));
  const name = (rows, at = 0) => ({ header: at === 0, value: (i) => rows[i][at] ?? '', cell: (i) => (rows[i][at] === null ? '–' : named(shownName(rows[i][at]))) });
  const number = (rows, at, format) => ({ number: true, value: (i) => rows[i][at], cell: (i) => format(rows[i][at]) });
  const list = (title, rows, total, columns) => {
    if (!rows.length) return;
    body.append(el('h3', {}, `${title} (${whole(total)})`), dataTable({ caption: title, unit: 'feature', n: rows.length, pageSize: 8, columns, text: (i) => rows[i].map((cell) => (typeof cell === 'string' ? shownName(cell) : '')).join(' ') }));
  };
  list('Gained', found.gained, found.n_gained, [{ label: 'Support', ...name(found.gained) }, { label: 'Weight', ...number(found.gained, 1, signed) }, { label: 'Spoken for before by', ...name(found.gained, 2) }]);
  list('Lost', found.lost, found.n_lost, [{ label: 'Support', ...name(found.lost) }, { label: 'Weight', ...number(found.lost, 1, signed) }, { label: 'Spoken for now by', ...name(found.lost, 2) }]);
  list('Kept', found.kept, found.n_kept, [{ label: 'Support', ...name(found.kept) }, { label: 'Rank before', first: 'up', ...number(found.kept, 1, whole) }, { label: 'Rank now', first: 'up', ...number(found.kept, 2, whole) }, { label: 'Weight before', ...number(found.kept, 3, signed) }, { label: 'Weight now', ...number(found.kept, 4, signed) }]);
  list('Moved between groups', found.moved, found.n_moved, [{ label: 'Feature', ...name(found.moved) }, { label: 'Before, with', ...name(found.moved, 1) }, { label: 'Now, with', ...name(found.moved, 2) }]);
  const [other, here] = found.facts;
  body.append(el('h3', {}, 'Side by side'), plainTable(['', 'other run', 'this run'], Object.keys(here).map((key) => [key.replace('n_', '').replace('_', ' '), ...[other, here].map((one) => (one[key] === null ? '–' : digits(one[key], 4)))])));
}
