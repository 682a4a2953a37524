"""Make the pictures of the README: ``make gallery``, or ``python tests/helpers/gallery.py FOLDER``.

It fits two digits that come with scikit-learn, and shows the report in a headless browser, and the plots.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gdm_dask import GroupDiscoveryMachine, plot, stability_selection
from helpers import browser

mpl.use("Agg")

SECTIONS = {"dark": ("map",), "light": ("images", "importance")}
FOLDER = Path(__file__).parents[2] / "pipelines" / "gallery"


def digits() -> tuple[Any, Any]:
    """Threes and eights: ((X, y) for training, (X, y) for testing)."""
    data = load_digits()
    chosen = np.isin(data.target, (3, 8))
    y = np.where(data.target[chosen] == 8, "eight", "three")
    X, X_test, y, y_test = train_test_split(data.data[chosen], y, random_state=0, stratify=y)
    return (X, y), (X_test, y_test)


def photograph(report: Path, folder: Path) -> None:
    """Take pictures of the top of a report, of some sections, and of a group on a phone."""
    with tempfile.TemporaryDirectory() as profile, browser.opened_browser(Path(profile)) as page:
        browser.set_width(page, 1200, 1150)
        for scheme, sections in SECTIONS.items():
            browser.set_scheme(page, scheme)
            browser.load(page, report)
            for section in sections:
                (folder / f"report-{section}.png").write_bytes(browser.picture(page, f"#{section}"))
        browser.set_scheme(page, "light")
        browser.load(page, report)
        page.save_screenshot(str(folder / "report.png"))
        browser.set_width(page, 375, 800)
        browser.load(page, report)
        page.execute_script("document.querySelector('#supports tbody .open').click()")
        page.save_screenshot(str(folder / "report-group-phone.png"))


def main(folder: Path) -> None:
    """Make all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test = digits()
    machine = GroupDiscoveryMachine(n_features_to_select=12, tau=0.4).fit(*train)
    stability = stability_selection(machine, *train, n_repeats=20)
    for name, drawn in {
        "convergence": plot.convergence(machine),
        "groups": plot.groups(machine),
        "image_masks": plot.image_masks(machine, (8, 8), train)[0, 0],
        "redundancy": plot.redundancy(machine),
        "stability": plot.stability(stability, machine),
    }.items():
        drawn.figure.savefig(folder / f"plot-{name}.png", dpi=100)
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.html"
        machine.report(
            report, title="Threes and eights", store=train, test=test, image_shape=(8, 8), stability=stability
        )
        photograph(report, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
