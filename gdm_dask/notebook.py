"""Views for notebooks: a card for a fitted model, and the cuts of a running fit. HTML without scripts."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from gdm_dask.report.summary import certificate, outcome
from gdm_dask.system.names import printable
from gdm_dask.system.resources import plural

if TYPE_CHECKING:
    import pandas as pd

    from gdm_dask.cutting_plane.iteration import Iteration
    from gdm_dask.model import FittedModel

#: Number of supports on the card.
SHOWN = 10
_STYLE = "font-family:system-ui,sans-serif;font-size:13px;line-height:1.45"
_COLORS = ("#2b83ba", "#dd6b1d")


def card(model: FittedModel) -> str:
    """Return the card of a fitted model: strongest supports, groups and bounds."""
    supports = model.supports_
    found = f"{plural(len(supports), 'support')} of {model.n_features_in_:,} features"
    if "members" in supports:
        found += f", {plural(int((supports['members'] > 1).sum()), 'group')} with affiliated features"
    gap, bounds = "", ""
    if model.get_params()["n_features_to_select"] is None:  # else the bounds say nothing about the supports
        gap = f"gap {model.gap_:.2%}, "
        bounds = bounds_picture(model.lower_bounds_.tolist(), model.upper_bounds_.tolist())
    proved = f"{plural(model.n_cuts_, 'cut')}, {gap}{outcome(model)}, redundancy rate "
    proved += f"{model.redundancy_rate_:.4f}, {model.timings_['total']:.1f} s. {certificate(model) or ''}"
    return (
        f'<div style="{_STYLE}"><strong>{type(model).__name__}</strong>: {escape(found)}<br>{escape(proved)}'
        f"{bounds}{_table(supports)}"
        "<small>report('report.html') writes a page with all of it.</small></div>"
    )


def _table(supports: pd.DataFrame) -> str:
    rows = []
    for support in supports.head(SHOWN).to_dict("records"):
        name, side = escape(printable(support["name"], 60)), escape(str(support["speaks_for"]))
        size = f"{support['members']:,}" if "members" in support else ""
        rows.append(
            f'<tr><td style="text-align:left"><bdi><code>{name}</code></bdi></td><td>{support["weight"]:+.3g}</td>'
            f'<td style="text-align:left">{side}</td><td>{size}</td></tr>'
        )
    head = "<tr><th>support</th><th>weight</th><th>speaks for</th><th>members</th></tr>"
    left = len(supports) - len(rows)
    more = f"<p>and {left:,} more</p>" if left else ""
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>{more}"


def bounds_picture(lower: list[float], upper: list[float]) -> str:
    """Draw both bounds by cut, as SVG."""
    width, height = 280, 70
    high = max(upper, default=0.0) or 1.0
    step = width / max(1, len(lower) - 1)

    def points(values: list[float]) -> str:
        return " ".join(f"{k * step:.1f},{height - (height - 4) * value / high:.1f}" for k, value in enumerate(values))

    lines = "".join(
        f'<polyline points="{points(values)}" fill="none" stroke="{color}" stroke-width="2"/>'
        for values, color in ((lower, _COLORS[0]), (upper, _COLORS[1]))
    )
    label = f"lower and upper bound after each of {len(lower)} cuts"
    return (
        f'<svg width="{width}" height="{height}" role="img" aria-label="{label}" style="display:block;margin:6px 0">'
        f"<title>{label}</title>{lines}</svg>"
    )


class FitProgress:
    """Display that follows a fit: pass it as `callback`.

    Examples
    --------
    In a notebook::

        GroupDiscoveryMachine(100).fit(X, y, callback=FitProgress())
    """

    def __init__(self) -> None:
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._display: Any = None

    def __call__(self, iteration: Iteration) -> None:
        """Update the display after a cut."""
        from IPython.display import HTML, display

        self._lower.append(iteration.lower)
        self._upper.append(iteration.upper)
        page = HTML(self.html(iteration))
        if self._display is None:
            self._display = display(page, display_id=True)
        else:
            self._display.update(page)

    def html(self, iteration: Iteration) -> str:
        """Return the page after a cut."""
        goal = iteration.n_entering
        picture = bounds_picture(self._lower, self._upper)
        if goal is not None:
            picture = f'<br><progress value="{iteration.n_supports}" max="{goal}" style="width:280px"></progress>'
        return f'<div style="{_STYLE}">{escape(str(iteration))}{picture}</div>'
