// A group, opened on demand: what is known of its support, the histogram of correlations, and the members.
const dialog = $('group');
const openers = []; // parts of the page that add to an opened group
let opener = null;

function openGroup(k) {
  opener = document.activeElement;
  hideTip();
  const close = el('button', { type: 'button', 'aria-label': 'Close the group', onclick: () => dialog.close() }, 'Close');
  const sheet = el('div', { class: 'sheet' });
  const title = el('h2', { id: 'group-title' }, el('p', {}, `Support ${k + 1} of ${whole(nSupports)}`), named(supportName(k)));
  dialog.replaceChildren(el('div', { class: 'sheet-head' }, title, close), sheet);
  dialog.showModal();
  dialog.scrollTop = 0;
  sheet.append(supportFacts(k));
  if (groups) showMembers(sheet, k);
  close.focus();
}
dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
dialog.addEventListener('close', () => { dialog.replaceChildren(); if (opener && opener.isConnected) opener.focus(); });

const fact = (name, ...value) => el('div', {}, el('dt', {}, name), el('dd', {}, ...value));

function supportFacts(k) {
  const weight = supports.weight[k];
  const facts = [
    fact('Weight', signed(weight)),
    fact('Speaks for', sideLabel(supports.side[k])),
    ...(supports.output_weights ? outputFacts(k) : [fact('Coefficient, raw units', signed(supports.coef[k]))]),
  ];
  if (supports.frequency) {
    report.data.classes.forEach((_, c) => facts.push(fact(el('span', {}, 'Not zero in ', classLabel(c)),
      `${whole(supports.frequency[c][k])} of ${whole(report.data.class_counts[c])}`)));
    report.data.classes.forEach((_, c) => facts.push(fact(el('span', {}, 'Mean in ', classLabel(c)), digits(supports.class_means[c][k]))));
  }
  if (supports.scores[k].length) facts.push(fact('Score, by cut', supports.scores[k].map(([cut, score]) => `${cut}: ${signed(score)}`).join(', ')));
  if (report.importance) facts.push(...importanceFacts(k));
  if (report.stability) facts.push(fact('Group found again', percent(report.stability.group_frequency[k], 0)));
  return el('dl', { class: 'facts' }, facts);
}
const outputFacts = (k) => sides.map((_, s) => fact(el('span', {}, 'Weight for ', sideLabel(s)), signed(supports.output_weights[s][k])));
function importanceFacts(k) {
  const found = report.importance;
  const facts = [fact(`${scoreName === 'R²' ? 'R²' : 'Accuracy'} lost without it`, points(found.support[k], found.support_std[k]))];
  if (found.group) facts.push(fact('Without the whole group', points(found.group[k], found.group_std[k])));
  return facts;
}
const points = (x, deviation) => `${minus((100 * x).toFixed(2))}${deviation === undefined ? '' : ` ± ${(100 * deviation).toFixed(2)}`} points`;

function showMembers(sheet, k) {
  const size = groups.size[k];
  if (groups.chain[k]) sheet.append(el('h3', {}, 'In context'), contextOf(k));
  for (const add of openers) add(sheet, k);
  if (size < 2) {
    sheet.append(el('p', { class: 'note' }, `No other feature correlates with it (|ρ| ≥ ${digits(groups.limit)}).`));
    return;
  }
  const plot = el('div', { class: 'plot' });
  sheet.append(el('h3', {}, `${plural(size, 'member')}, the support included`), plot);
  correlationHistogram(plot, groups.edges, groups.positive[k], groups.negative[k]);
  sheet.append(memberTable(k));
  const left = size - groups.feature[k].length;
  if (left > 0) sheet.append(el('p', { class: 'note' }, `The ${whole(groups.feature[k].length)} members that correlate most are listed; ${whole(left)} more are left out of this page. All of them: gdm groups RUN --format tsv`));
}

// The n-gram within the longer text that its group spells.
function contextOf(k) {
  const text = groups.chain[k];
  const at = text.indexOf(supports.name[k]);
  const inside = at < 0 ? [text] : [text.slice(0, at), el('mark', {}, text.slice(at, at + supports.name[k].length)), text.slice(at + supports.name[k].length)];
  return el('div', {}, el('div', { class: 'context' }, el('bdi', {}, inside)),
    el('p', { class: 'note' }, 'Overlapping n-grams of this group, joined. They come from the names of features, not from a document.'));
}

function memberTable(k) {
  const features = groups.feature[k];
  const rho = groups.rho[k].map((value) => value / 10000);
  const others = new Map(groups.others[k]);
  const columns = [
    { label: 'Feature', header: true, value: (i) => featureName(features[i]), cell: (i) => named(featureName(features[i])) },
    { label: 'Correlation', number: true, value: (i) => Math.abs(rho[i]), cell: (i) => minus(rho[i].toFixed(4)) },
  ];
  if (report.data.named) columns.push({ label: 'Number', number: true, first: 'up', value: (i) => features[i], cell: (i) => String(features[i]) });
  if (others.size) {
    columns.push({ label: 'Nearest support', value: (i) => (others.has(i) ? supportName(others.get(i)) : ''), cell: (i) => (others.has(i) ? groupButton(others.get(i)) : 'this one') });
  }
  return dataTable({ caption: `members of the group`, unit: 'member', n: features.length, columns, pageSize: 20, fleeting: true, text: (i) => `${featureName(features[i])} ${features[i]}` });
}
const groupButton = (k) => el('button', { type: 'button', class: 'open', onclick: () => openGroup(k) }, named(supportName(k)));
