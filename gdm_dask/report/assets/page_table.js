// Tables that sort, search and turn pages; only the rows of a page are in the document, so length does not matter.
// options: caption, n, columns [{label, value(i), cell(i), number, header, tip, first}], text(i), pageSize, sort, empty, fleeting
let tableCount = 0;
function dataTable(options) {
  const id = `table-${++tableCount}`;
  const pageSize = options.pageSize ?? 25;
  const state = { order: Array.from({ length: options.n }, (_, i) => i), page: 0, column: null, down: false, query: '' };
  const body = el('tbody');
  const count = el('span', { class: 'count', role: 'status', 'aria-live': 'polite' });
  const headers = options.columns.map((column, k) => header(column, k));
  const table = el('table', { id }, el('caption', { class: 'unseen' }, options.caption), el('thead', {}, el('tr', {}, headers)), body);
  const search = el('input', { type: 'search', placeholder: 'Search', 'aria-label': `Search ${options.caption}`, 'aria-controls': id, oninput: () => { state.query = search.value; find(); } });
  const back = el('button', { type: 'button', onclick: () => turn(-1) }, 'Previous');
  const next = el('button', { type: 'button', onclick: () => turn(1) }, 'Next');
  const where = el('span', { class: 'note' });
  const pager = el('div', { class: 'pager' }, back, next, where);
  const texts = [];

  function header(column, k) {
    const attributes = { scope: 'col', class: column.number ? 'number' : null, title: column.tip };
    if (!column.value) return el('th', attributes, column.label);
    return el('th', { ...attributes, 'aria-sort': 'none' }, el('button', { type: 'button', onclick: () => sortBy(k) }, column.label));
  }
  function sortBy(k, down) {
    const column = options.columns[k];
    const first = column.first ?? (column.number ? 'down' : 'up');
    state.down = down ?? (state.column === k ? !state.down : first === 'down');
    state.column = k;
    headers.forEach((head, j) => head.hasAttribute('aria-sort') && head.setAttribute('aria-sort', j !== k ? 'none' : state.down ? 'descending' : 'ascending'));
    arrange();
  }
  function arrange() {
    if (state.column !== null) {
      const value = options.columns[state.column].value;
      const keys = new Map(state.order.map((i) => [i, value(i)]));
      const sign = state.down ? -1 : 1;
      state.order.sort((i, j) => sign * compare(keys.get(i), keys.get(j)) || i - j);
    }
    state.page = 0;
    draw();
  }
  function find() {
    const wanted = state.query.toLowerCase(); // as it was typed: blanks may belong to an n-gram
    state.order = [];
    for (let i = 0; i < options.n; i++) if ((texts[i] ??= options.text(i).toLowerCase()).includes(wanted)) state.order.push(i);
    arrange();
  }
  function turn(step) {
    state.page += step;
    draw();
  }
  function draw(size = pageSize) {
    const shown = state.order.slice(state.page * size, (state.page + 1) * size);
    body.replaceChildren(...shown.map((i) => row(i)));
    if (!shown.length) body.append(el('tr', {}, el('td', { class: 'none', colspan: options.columns.length }, options.empty ?? 'Nothing matches the search.')));
    const pages = Math.max(1, Math.ceil(state.order.length / size));
    count.textContent = state.order.length === options.n ? plural(options.n, options.unit) : `${whole(state.order.length)} of ${plural(options.n, options.unit)}`;
    where.textContent = `page ${state.page + 1} of ${whole(pages)}`;
    back.disabled = state.page === 0;
    next.disabled = state.page >= pages - 1;
    pager.hidden = pages === 1;
  }
  function row(i) {
    return el('tr', {}, options.columns.map((column) => {
      const content = column.cell ? column.cell(i) : String(column.value(i));
      return el(column.header ? 'th' : 'td', { scope: column.header ? 'row' : null, class: column.number ? 'number' : null }, content);
    }));
  }
  if (options.sort !== undefined) sortBy(options.sort, options.down);
  else draw();
  if (!options.fleeting) {
    addEventListener('beforeprint', () => { state.page = 0; draw(500); });
    addEventListener('afterprint', () => draw());
  }
  const tools = el('div', { class: 'tools' }, options.n > 8 ? search : null, count);
  return el('div', {}, tools, el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': options.caption }, table), pager);
}
function compare(a, b) {
  if (a === null || b === null) return (a === null) - (b === null);
  return typeof a === 'number' ? a - b : a < b ? -1 : a > b ? 1 : 0;
}

// A plain table for a few rows, such as the numbers behind a chart.
function plainTable(head, rows) {
  return el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': head.join(', ') }, el('table', {},
    el('thead', {}, el('tr', {}, head.map((label, k) => el('th', { scope: 'col', class: k ? 'number' : null }, label)))),
    el('tbody', {}, rows.map((row) => el('tr', {}, row.map((cell, k) => el('td', { class: k ? 'number' : null }, cell)))))));
}
// Names and values; no heading is needed.
function settingsTable(rows) {
  return el('div', { class: 'scroll narrow' }, el('table', {}, el('tbody', {}, rows.map(([name, value]) => el('tr', {}, el('th', { scope: 'row' }, name), el('td', {}, value))))));
}
const numbersBehind = (head, rows) => {
  const details = el('details', {}, el('summary', {}, 'The numbers'));
  details.addEventListener('toggle', () => details.open && details.childElementCount === 1 && details.append(plainTable(head, rows)));
  return details;
};
