"""Plots draw the machine's data on the given axes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.report_cases import HOSTILE, fitted, grouped

from gdm_dask import GroupDiscoveryMachine, plot, stability_selection
from gdm_dask.errors import BadInput

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402 (the backend is chosen first)


@pytest.fixture(autouse=True)
def _close():
    yield
    pyplot.close("all")


def test_convergence_draws_the_bounds() -> None:
    machine = fitted()
    ax = plot.convergence(machine)
    upper, lower = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(upper, machine.upper_bounds_)
    np.testing.assert_array_equal(lower, machine.lower_bounds_)


def test_groups_draw_weights_and_sizes() -> None:
    machine = fitted()
    ax = plot.groups(machine, n=4)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], machine.weights_[:4])
    assert [text.get_text() for text in ax.texts] == [str(len(g)) for g in list(machine.groups_.values())[:4]]


def test_supports_of_several_classes_tell_theirs() -> None:
    X = grouped()[0]
    names = np.array(["low", "mid$", "high"])
    machine = GroupDiscoveryMachine(4).fit(X, names[np.digitize(X[:, 0], [-0.5, 0.5])])
    ax = plot.groups(machine)
    assert len({bar.get_facecolor() for bar in ax.patches}) == 1
    table = machine.supports_
    expected = [f"{size}, {side}" for size, side in zip(table["members"], table["speaks_for"], strict=True)]
    assert [text.get_text().replace(r"\$", "$") for text in ax.texts] == expected
    ax.figure.canvas.draw()


def test_redundancy_draws_the_correlations() -> None:
    machine = fitted()
    ax = plot.redundancy(machine)
    assert {label.get_text() for label in ax.get_yticklabels()} == set(machine.supports_["name"])
    shown = ax.images[0].get_array()
    assert np.ma.allclose(np.sort(shown.compressed()), np.sort(_off_diagonal(machine.profile_.correlations)))


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    return matrix[~np.eye(len(matrix), dtype=bool)]


@pytest.mark.parametrize("data", [None, grouped()])
def test_masks_are_white_pixels(data) -> None:
    machine = fitted()
    axes = plot.image_masks(machine, (5, 8), data)
    assert axes.shape == (1 if data is None else 2, 3)
    for row in axes:
        supports = row[1].images[0].get_array().ravel()
        assert np.flatnonzero(supports == 1).tolist() == sorted(machine.support_features_.tolist())
        affiliated = set(np.concatenate(list(machine.groups_.values())).tolist()) - set(
            machine.support_features_.tolist()
        )
        assert set(np.flatnonzero(row[2].images[0].get_array().ravel() == 1).tolist()) == affiliated


def test_stability_draws_frequencies() -> None:
    machine = fitted()
    found = stability_selection(machine, *grouped(), n_repeats=2)
    ax = plot.stability(found, machine)
    assert ax.lines[0].get_xdata().tolist() == found.group_frequency


def test_given_axes_are_drawn_on() -> None:
    machine = fitted()
    _, axes = pyplot.subplots(1, 3)
    for function, ax in zip((plot.convergence, plot.groups, plot.redundancy), axes, strict=True):
        assert function(machine, ax) is ax


def test_hostile_names_are_drawn() -> None:
    names = [name for name in HOSTILE if name.isascii()] + ["$unclosed", r"$\frac{"]
    machine = fitted(names, n_features_to_select=len(names))
    plot.groups(machine).figure.canvas.draw()


def test_missing_matplotlib_is_named(monkeypatch) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match=r"gdm_dask\[plot\]"):
        plot.convergence(fitted())
