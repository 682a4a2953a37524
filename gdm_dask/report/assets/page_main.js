// Put the page together: first what is seen first, the rest when the browser has drawn that.
function changeTheme() {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  redraws.forEach((draw) => draw());
}
$('theme').addEventListener('click', changeTheme);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => redraws.forEach((draw) => draw()));
addEventListener('keydown', (event) => { if (event.key === 'Escape') hideTip(); });
addEventListener('scroll', hideTip, { passive: true });

const sections = [showGlance, showSupports, showImages, showMap, showSizes, showImportance, showStability, showComparison, showBounds, showCost, showAbout];
function drawNext() {
  const draw = sections.shift();
  if (!draw) {
    document.documentElement.dataset.ready = 'yes';
    $(location.hash.slice(1))?.scrollIntoView({ behavior: 'instant' }); // it may not have been there when the page loaded
    return;
  }
  draw();
  if (sections.length > 9) drawNext();
  else setTimeout(drawNext);
}
drawNext();
addEventListener('beforeprint', () => { while (sections.length) sections.shift()(); });
