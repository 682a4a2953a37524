// The first things to know, the bounds, the cost, and how to read it all.
const facts = report.facts;
const stopReasons = {
  tolerance: 'the tolerance', max_cuts: 'the limit of cuts', 'repeated cut': 'a repeated cut',
  'nothing left': 'a lack of features', 'enough supports': 'the number of supports',
};

function tile(name, big, small) {
  return el('div', {}, el('dt', {}, name), el('dd', { class: 'big' }, big), small ? el('dd', { class: 'small' }, small) : null);
}

function showGlance() {
  const section = $('glance');
  section.hidden = false;
  const tiles = section.querySelector('.tiles');
  const data = report.data;
  if (data.n_samples !== null) {
    const counts = data.class_counts;
    const [fewest, most] = [Math.min(...counts), Math.max(...counts)].map(whole);
    const split = counts.length > 5
      ? `of ${whole(counts.length)} classes, ${fewest === most ? most : `${fewest} to ${most}`} each`
      : counts.map((count, k) => el('div', {}, classLabel(k), `: ${whole(count)}`));
    tiles.append(tile('Samples', whole(data.n_samples), data.kind === 'numbers' ? null : split));
  }
  tiles.append(tile('Features', whole(data.n_features)));
  tiles.append(tile('Supports', whole(facts.n_supports), `${digits((100 * facts.n_supports) / data.n_features)}% of the features`));
  if (facts.n_affiliated !== null) {
    tiles.append(tile('Affiliated', whole(facts.n_affiliated), facts.n_affiliated ? `in ${plural(facts.n_groups_with_affiliated, 'group')}; the largest has ${plural(facts.largest_group, 'member')}` : 'no other feature correlates with a support'));
  }
  for (const entry of report.accuracy) {
    const isNumbers = data.kind === 'numbers';
    const value = isNumbers ? (entry.r2 === null ? '–' : entry.r2.toFixed(4)) : percent(entry.accuracy, 2);
    const more = [el('div', {}, `on ${plural(entry.n_samples, 'sample')} of `, el('bdi', {}, entry.name))];
    if (entry.interval) more.push(el('div', {}, `95% interval: ${entry.interval.map((x) => percent(x)).join(' to ')}`));
    if (entry.auc) more.push(el('div', {}, `AUC ${entry.auc.toFixed(4)}`));
    if (!isNumbers) more.push(el('div', {}, `always the largest class: ${percent(entry.largest_class)}`));
    tiles.append(tile(`${isNumbers ? 'R²' : 'Accuracy'}, ${entry.kind}`, value, more));
  }
  tiles.append(tile('Redundancy rate', facts.redundancy_rate.toFixed(4), 'of the supports; 0 is none'));
  if (facts.wanted !== null) { // the gap says nothing about the supports
    tiles.append(tile('Cuts', whole(facts.n_cuts), facts.outcome));
  } else {
    const gap = percent(facts.gap, facts.gap < 0.01 ? 3 : 1);
    const state = facts.converged ? el('span', { class: 'state good' }, '✓ converged') : el('span', { class: 'state unproved' }, '○ not converged');
    tiles.append(tile('Gap', gap, [state, `; ended by ${stopReasons[facts.stopped] ?? facts.stopped}`]));
  }
  if (facts.certified_share !== null) {
    tiles.append(tile('Certified', `≥ ${percent(Math.floor(1000 * facts.certified_share) / 1000, 1)}`, `of what any ${plural(facts.wanted, 'feature')} can explain`));
  }
  tiles.append(tile('C', digits(facts.C), facts.trade_off));
  tiles.append(tile('Time', seconds(facts.seconds), `for ${plural(facts.n_cuts, 'cut')} and the groups`));
}

function legend(entries) {
  return el('ul', { class: 'legend' }, entries.map(([color, name, dash]) => el('li', {},
    svg('svg', { width: 22, height: 8, 'aria-hidden': 'true' }, svg('line', { x1: 0, x2: 22, y1: 4, y2: 4, stroke: `var(${color})`, 'stroke-width': 3, 'stroke-dasharray': dash })), name)));
}

function showBounds() {
  const cuts = report.cuts;
  if (!cuts.lower.length) return;
  const proved = facts.wanted !== null
    ? `The fit ${facts.outcome}; the bounds are about the cuts, not about this number. ${facts.certificate ?? 'The choice was not certified.'}`
    : facts.converged ? `They meet within the tolerance (${digits(report.parameters.tol)}), which proves the cuts nearly optimal for problem (4).`
    : 'They do not meet within the tolerance, so the cuts are not proved optimal; the fit ended for another reason.';
  const chosen = facts.n_entered > nSupports ? ` From the ${whole(facts.n_entered)} supports that entered, the best ${whole(nSupports)} were then chosen: a step that the bounds do not cover.` : '';
  const body = show('bounds', 'Bounds', `After each cut the optimum of the paper's problem (4), over the features that no support covers, lies between the two lines: both are valid bounds, also where the matching is greedy. ${proved}${chosen}`);
  const gap = cuts.lower.map((lower, k) => (cuts.upper[k] > 0 ? Math.max(0, (cuts.upper[k] - lower) / cuts.upper[k]) : 0));
  const bounds = el('div', { class: 'plot' });
  const gaps = el('div', { class: 'plot' });
  const colors = [['--one-fill', 'upper bound'], ['--zero-fill', 'lower bound', '5 3']];
  body.append(el('div', { class: 'pair' }, el('div', { class: 'card' }, legend(colors), bounds), el('div', { class: 'card' }, legend([['--accent', 'gap, (upper − lower) / upper']]), gaps)));
  const precise = (v, exact) => minus(digits(v, exact ? 6 : 3));
  lineChart(bounds, { label: `Bounds after each of ${cuts.lower.length} cuts`, xLabel: 'cut', yFormat: precise, series: [
    { name: 'upper', values: cuts.upper, color: '--one-fill' }, { name: 'lower', values: cuts.lower, color: '--zero-fill', dash: '5 3' }] });
  lineChart(gaps, { label: `Gap after each cut, ${percent(gap.at(-1), 2)} at the end`, xLabel: 'cut', zero: true, yFormat: (v, exact) => percent(v, exact ? 3 : v < 0.1 ? 1 : 0), series: [{ name: 'gap', values: gap, color: '--accent' }] });
  body.append(numbersBehind(['cut', 'supports', 'best score', 'lower bound', 'upper bound', 'gap'], cuts.lower.map((lower, k) => [
    String(k + 1), whole(cuts.n_supports[k]), digits(cuts.best_score[k], 4), digits(lower, 6), digits(cuts.upper[k], 6), percent(gap[k], 3)])));
}

function showCost() {
  const parts = Object.entries(report.timings).filter(([name]) => name !== 'total').map(([name, value]) => ({ name, value }));
  const rest = facts.seconds - parts.reduce((sum, part) => sum + part.value, 0);
  if (rest > 0.01 * facts.seconds) parts.push({ name: 'other', value: rest, color: '--soft' });
  const counts = report.counts;
  const body = show('cost', 'Cost', `${seconds(facts.seconds)} in all, ${plural(counts.passes, 'read')} of the data, ${bytes(counts.bytes_read)} decoded.`);
  const time = el('div', { class: 'plot' });
  const reads = el('div', { class: 'plot' });
  body.append(el('div', { class: 'pair' }, el('div', { class: 'card' }, el('h3', {}, 'Where the time went'), time), el('div', { class: 'card' }, el('h3', {}, 'What was read'), reads)));
  barList(time, `Seconds: ${parts.map((part) => `${part.name} ${seconds(part.value)}`).join(', ')}`, parts, seconds);
  const counted = ['blocks_used', 'blocks_read', 'rows_scanned', 'rows_skipped', 'tasks'];
  reads.append(settingsTable([...counted.map((name) => [name.replace('_', ' '), whole(counts[name])]), ['bytes read', bytes(counts.bytes_read)]]));
  const cuts = report.cuts;
  body.append(numbersBehind(['cut', 'scores', 'matching', 'master', 'bytes read', 'features compared'], cuts.lower.map((_, k) => [String(k + 1),
    ...['scores', 'matching', 'master'].map((part) => seconds(cuts.seconds[part][k])), bytes(cuts.bytes_read[k]), whole(cuts.n_examined[k])])));
}

function showAbout() {
  const body = show('about', 'How to read this');
  const tau = report.parameters.tau;
  const linkage = {
    clique: ' The members of a group, nearest first, correlate with each other as well.',
    component: ' So is a feature that a chain of such correlations links with a support.',
  }[report.parameters.linkage] ?? '';
  const term = (name, text) => [el('dt', {}, name), el('dd', {}, text)];
  body.append(el('dl', { class: 'prose' },
    term('Support', 'A feature that helps to predict the target and correlates with no other support.'),
    term('Correlation ρ', `Here ${report.facts.measure}.`),
    term('Affiliated', tau > 0 ? `A feature that correlates with a support: |ρ| ≥ ${digits(1 - tau)} (1 − tau).${linkage} Where several supports qualify, the nearest owns it.` : 'None in this run: tau = 0 switches the correlation constraint off (FGM).'),
    term('Weight', `Of the normalised feature in the model. ${supports.output_weights ? 'Each output has its own; this is their norm.' : 'Its sign tells what the feature speaks for when it is large.'}`),
    term('Cut', 'A set of features that entered the model together. The fit makes cut after cut.'),
    term('Score', 'How much a feature would change the margin at the moment its cut was made.'),
    term('Redundancy rate', 'The mean |Pearson correlation| over pairs of supports, divided as in the paper of Zhai, Tan, Tsang and Ong (ICML 2012).'),
    term('Gap', 'How far apart the bounds are, relative to the upper one. Only a gap within the tolerance is called converged.'),
    term('C', 'How closely the machine fits the samples during the search: a small C shrinks the weights more.'),
    report.data.kind === 'numbers' ? term('R²', 'Share of the variance that a ridge regression on the supports alone explains.')
      : term('Accuracy', 'Share of the samples that a linear SVM on the supports alone gets right. An interval (Wilson) is given for test samples only: a model flatters itself on the samples that it was fitted on.')));
  const shown = { ...report.parameters };
  for (const [key, value] of Object.entries(report.run)) if (typeof value === 'string') shown[key] = value;
  body.append(el('h3', {}, 'Parameters'), settingsTable(Object.entries(shown).map(([key, value]) => [key, el('bdi', {}, value === null ? 'none' : String(value))])));
  $('made').textContent = `Made with ${report.made_with}. This page is one file and fetches nothing.`;
}
