// Features as pixels: mean images of the classes with the pixels that were selected, as in the paper's Figures 1 and 6.
const pixels = report.images;
const WHITE = [255, 255, 255];

function pixelCanvas(paintPixel, label) {
  const [height, width] = pixels.shape;
  const canvas = el('canvas', { class: 'pixels', width, height, role: 'img', 'aria-label': label });
  const draw = () => {
    const pen = canvas.getContext('2d');
    const image = pen.createImageData(width, height);
    for (let p = 0; p < pixels.n_pixels; p++) image.data.set([...paintPixel(p), 255], 4 * p);
    pen.putImageData(image, 0, 0);
  };
  redraws.push(draw);
  draw();
  return canvas;
}
// Classes to draw over: each of two, but the mean of more, which would repeat the same pixels again and again.
const backgrounds = pixels?.means?.length > 2 ? [null] : (pixels?.means ?? [0]).map((_, c) => c);
const meanOf = (c, p) => (c === null ? pixels.means.reduce((sum, mean) => sum + mean[p], 0) / pixels.means.length : pixels.means[c][p]);
const grey = (c, p) => (pixels.means ? Array(3).fill(Math.round(meanOf(c, p) * 0.8)) : [40, 40, 40]);
const meanLabel = (c) => (c === null ? ['mean of all classes'] : ['mean of ', classLabel(c)]);
const meanFigure = (c) => figure(pixelCanvas((p) => grey(c, p), c === null ? 'mean image of all classes' : `mean image of class ${report.data.classes[c]}`), pixels.means ? meanLabel(c) : ['frame']);

function showImages() {
  if (!pixels) return;
  const supportAt = new Map(supports.feature.map((feature, k) => [feature, k]));
  const ownerAt = new Map(pixels.affiliated);
  const source = pixels.means ? (pixels.means.length === 1 ? 'The mean image' : 'Mean images of the classes') : 'The image frame (pass the data with --store to see mean images)';
  const body = show('images', 'Pixels', `${source}, with the pixels of the supports and of their groups in white. Point at a pixel to see what it is, press it to open its group.`);
  if (backgrounds[0] === null) body.append(el('div', { class: 'strip card' }, pixels.means.map((_, c) => meanFigure(c))), el('p'));
  for (const c of backgrounds) {
    const figures = [
      meanFigure(c),
      figure(pixelCanvas((p) => (supportAt.has(p) ? WHITE : grey(c, p)), `support pixels`), [`${whole(nSupports)} supports`]),
      figure(pixelCanvas((p) => (ownerAt.has(p) ? WHITE : grey(c, p)), `affiliated pixels`), [`${whole(pixels.affiliated.length)} affiliated`]),
      figure(pixelCanvas((p) => tinted(c, p, supportAt, ownerAt), 'pixels of supports and of affiliated features'), [`${sides.length === 2 ? 'by class: ' : ''}supports bright, affiliated dim`]),
    ];
    figures.forEach((one) => answer(one.querySelector('canvas'), supportAt, ownerAt));
    body.append(el('div', { class: 'strip card' }, figures));
    if (c !== backgrounds.at(-1)) body.append(el('p'));
  }
  openers.push((sheet, k) => groupImage(sheet, k));
}
const figure = (canvas, caption) => el('figure', {}, canvas, el('figcaption', {}, caption));

function tinted(c, p, supportAt, ownerAt) {
  const k = supportAt.get(p) ?? ownerAt.get(p);
  if (k === undefined) return grey(c, p).map((v) => Math.round(v * 0.6));
  const color = toneOf(k) ? [245, 140, 60] : [70, 165, 230];
  return supportAt.has(p) ? color : color.map((v) => Math.round(v * 0.55));
}
function answer(canvas, supportAt, ownerAt) {
  const pixelAt = (event) => {
    const box = canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * pixels.shape[1]);
    const row = Math.floor(((event.clientY - box.top) / box.height) * pixels.shape[0]);
    return { row, column, p: row * pixels.shape[1] + column };
  };
  canvas.addEventListener('pointermove', (event) => {
    const { row, column, p } = pixelAt(event);
    const k = supportAt.get(p) ?? ownerAt.get(p);
    canvas.style.cursor = k === undefined ? 'default' : 'pointer';
    const what = supportAt.has(p) ? [`support ${k + 1}`] : k === undefined ? ['not selected'] : ['affiliated with ', named(supportName(k))];
    showTip(event.clientX, event.clientY, el('p', {}, `row ${row + 1}, column ${column + 1}: `, what));
  });
  canvas.addEventListener('pointerleave', hideTip);
  canvas.addEventListener('click', (event) => {
    const { p } = pixelAt(event);
    const k = supportAt.get(p) ?? ownerAt.get(p);
    if (k !== undefined) openGroup(k);
  });
}
function groupImage(sheet, k) {
  const members = new Set(groups.feature[k]);
  const color = toneOf(k) ? [245, 140, 60] : [70, 165, 230];
  const before = redraws.length;
  const figures = backgrounds.map((c) => figure(pixelCanvas((p) => (p === supports.feature[k] ? WHITE : members.has(p) ? color : grey(c, p)), 'pixels of this group'), pixels.means ? ['over the ', ...meanLabel(c)] : ['frame']));
  redraws.length = before; // the dialog goes away: nothing to draw again
  sheet.append(el('h3', {}, 'Where it is'), el('div', { class: 'strip' }, figures, el('p', { class: 'note' }, 'White: the support. Coloured: its members.')));
}
