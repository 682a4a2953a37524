// Small charts in SVG. Each has a label for screen readers; the numbers are in a table beside it.
const linear = (from, to, low, high) => (x) => low + ((x - from) / (to - from || 1)) * (high - low);

function ticks(low, high, count) {
  const step = 10 ** Math.floor(Math.log10((high - low) / count || 1));
  const wide = [1, 2, 5, 10].find((m) => (high - low) / (m * step) <= count) * step;
  const found = [];
  for (let x = Math.ceil(low / wide - 1e-9) * wide; x <= high + 1e-9 * wide; x += wide) found.push(Number(x.toPrecision(12)));
  return found;
}
const integerTicks = (low, high, count) => ticks(low, high, count).filter(Number.isInteger);

function axes(frame, x, y, options) {
  const { left, top, right, bottom } = frame;
  const nodes = [];
  for (const tick of options.yTicks) {
    nodes.push(svg('line', { class: 'axis', x1: left, x2: right, y1: y(tick), y2: y(tick) }));
    nodes.push(svg('text', { x: left - 8, y: y(tick) + 4, 'text-anchor': 'end' }, options.yFormat(tick)));
  }
  for (const tick of options.xTicks) {
    nodes.push(svg('text', { x: x(tick), y: bottom + 18, 'text-anchor': 'middle' }, (options.xFormat ?? whole)(tick)));
  }
  if (options.xLabel) nodes.push(svg('text', { x: right, y: bottom + 36, 'text-anchor': 'end' }, options.xLabel));
  if (options.yLabel) nodes.push(svg('text', { x: 0, y: top - 12 }, options.yLabel));
  return nodes;
}

// options: label, series [{values, color, name, dash}], xLabel, yLabel, yFormat, zero
function lineChart(container, options) {
  responsive(container, (width) => {
    const frame = { left: 58, top: 28, right: width - 12, bottom: 210 };
    const all = options.series.flatMap((one) => one.values).filter(Number.isFinite);
    const n = options.series[0].values.length;
    const low = options.zero ? 0 : Math.min(...all);
    const high = Math.max(...all);
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    const x = linear(1, Math.max(n, 2), frame.left, frame.right);
    const y = linear(options.zero ? 0 : low - pad, high + pad, frame.bottom, frame.top);
    const chart = svg('svg', { width, height: 254, role: 'img', 'aria-label': options.label });
    chart.append(...axes(frame, x, y, {
      ...options, xTicks: integerTicks(1, Math.max(n, 2), width / 70), yTicks: ticks(options.zero ? 0 : low, high, 5),
    }));
    for (const one of options.series) {
      const points = one.values.map((value, k) => `${x(k + 1)},${y(value)}`).join(' ');
      chart.append(svg('polyline', { points, fill: 'none', stroke: css(one.color), 'stroke-width': 2, 'stroke-dasharray': one.dash, 'stroke-linejoin': 'round' }));
      if (n <= 60) for (let k = 0; k < n; k++) chart.append(svg('circle', { cx: x(k + 1), cy: y(one.values[k]), r: 2.5, fill: css(one.color) }));
    }
    const cursor = svg('line', { y1: frame.top, y2: frame.bottom, stroke: css('--soft'), visibility: 'hidden' });
    chart.append(cursor);
    chart.addEventListener('pointermove', (event) => {
      const at = event.clientX - chart.getBoundingClientRect().left;
      const k = Math.min(n - 1, Math.max(0, Math.round(linear(frame.left, frame.right, 1, Math.max(n, 2))(at)) - 1));
      fill(cursor, { x1: x(k + 1), x2: x(k + 1), visibility: 'visible' }, []);
      showTip(event.clientX, event.clientY, el('p', {}, el('strong', {}, `cut ${k + 1}`)),
        ...options.series.map((one) => el('p', {}, `${one.name}: ${options.yFormat(one.values[k], true)}`)));
    });
    chart.addEventListener('pointerleave', () => { cursor.setAttribute('visibility', 'hidden'); hideTip(); });
    container.replaceChildren(chart);
  });
}

// Bars below each other, names to the left; for the parts of a whole.
function barList(container, label, rows, format) {
  responsive(container, (width) => {
    const high = Math.max(...rows.map((row) => row.value), 1e-12);
    const left = 96;
    const x = linear(0, high, left, width - 84);
    const chart = svg('svg', { width, height: rows.length * 30 + 4, role: 'img', 'aria-label': label });
    rows.forEach((row, k) => {
      const y = k * 30 + 4;
      chart.append(
        svg('text', { x: left - 10, y: y + 16, 'text-anchor': 'end' }, row.name),
        svg('rect', { x: left, y, width: Math.max(1, x(row.value) - left), height: 22, rx: 3, fill: css(row.color ?? '--zero-fill') }),
        svg('text', { x: x(row.value) + 8, y: y + 16, class: 'strong' }, format(row.value)),
      );
    });
    container.replaceChildren(chart);
  });
}

// Counts of |rho| in bins: positive ones stand on the axis, negative ones hang below it.
function correlationHistogram(container, edges, positive, negative) {
  responsive(container, (width) => {
    const highest = Math.max(1, ...positive);
    const lowest = Math.max(0, ...negative);
    const frame = { left: 58, right: width - 8, top: 14, bottom: lowest ? 190 : 130 };
    const x = linear(edges[0], edges.at(-1), frame.left, frame.right);
    const y = linear(-lowest, highest, frame.bottom, frame.top);
    const summary = `Correlations of the members: ${positive.reduce((a, b) => a + b, 0)} positive, ${negative.reduce((a, b) => a + b, 0)} negative`;
    const chart = svg('svg', { width, height: frame.bottom + 42, role: 'img', 'aria-label': summary });
    const bar = (k, count, color, sign) => {
      const from = y(sign * count);
      const node = svg('rect', { x: x(edges[k]) + 1, y: Math.min(from, y(0)), width: Math.max(1, x(edges[k + 1]) - x(edges[k]) - 2), height: Math.abs(from - y(0)), fill: css(color) });
      node.addEventListener('pointermove', (event) => showTip(event.clientX, event.clientY, el('p', {}, `${plural(count, 'member')} with |ρ| from ${edges[k].toFixed(3)} to ${edges[k + 1].toFixed(3)}, ${sign > 0 ? 'positive' : 'negative'}`)));
      node.addEventListener('pointerleave', hideTip);
      chart.append(node);
    };
    chart.append(...axes(frame, x, y, {
      xTicks: ticks(edges[0], edges.at(-1), 6), xFormat: (v) => v.toFixed(2), yTicks: integerTicks(-lowest, highest, 4),
      yFormat: (v) => whole(Math.abs(v)), xLabel: '|ρ| with the support',
    }));
    positive.forEach((count, k) => count && bar(k, count, '--one-fill', 1));
    negative.forEach((count, k) => count && bar(k, count, '--zero-fill', -1));
    container.replaceChildren(chart);
  });
}

// A number as a bar left or right of zero, for a cell of a table.
function signedBar(value, largest) {
  const size = (Math.abs(value) / (largest || 1)) * 30;
  const one = classOf(value);
  return svg('svg', { class: 'bar', width: 64, height: 12, 'aria-hidden': 'true' },
    svg('line', { class: 'axis', x1: 32, x2: 32, y1: 0, y2: 12 }),
    svg('rect', { x: one ? 32 : 32 - size, y: 2, width: Math.max(1, size), height: 8, rx: 1.5, fill: `var(${one ? '--one-fill' : '--zero-fill'})` }));
}
