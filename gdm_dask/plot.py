"""Figures of a fitted model on matplotlib axes, for papers and notebooks: ``pip install gdm_dask[plot]``.

Each function draws on the given axes, or on new ones, and returns them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gdm_dask.analysis.metrics import Labelled
from gdm_dask.analysis.stability import Stability
from gdm_dask.errors import BadInput
from gdm_dask.model import FittedModel
from gdm_dask.report.groups import clustered_order
from gdm_dask.report.images import check_shape, class_means
from gdm_dask.report.summary import outcome
from gdm_dask.system.names import printable

#: Colours of the two classes, distinguishable with colour blindness.
CLASS_COLORS = ("#2b83ba", "#dd6b1d")
_LONGEST_NAME = 32
#: A map of at most so many supports shows their names.
_NAMED = 30


def _new_axes(width: float, height: float) -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise BadInput("plots need matplotlib: pip install gdm_dask[plot]") from error
    return pyplot.subplots(figsize=(width, height), layout="constrained")[1]


def _label(model: FittedModel, feature: int) -> str:
    """Return a short name of a feature, with matplotlib's markup escaped."""
    return printable(model.name_of(feature), _LONGEST_NAME).replace("$", r"\$")


def convergence(machine: FittedModel, ax: Any = None) -> Any:
    """Plot the lower and upper bound after each cut.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
    """
    check_is_fitted(machine)
    ax = _new_axes(6, 3.6) if ax is None else ax
    cuts = np.arange(1, machine.n_cuts_ + 1)
    ax.fill_between(cuts, machine.lower_bounds_, machine.upper_bounds_, color="0.5", alpha=0.12, linewidth=0)
    ax.plot(cuts, machine.upper_bounds_, color=CLASS_COLORS[1], marker=".", label="upper bound")
    ax.plot(cuts, machine.lower_bounds_, color=CLASS_COLORS[0], marker=".", linestyle="--", label="lower bound")
    ax.set_xlabel("cut")
    ax.set_ylabel("optimum of (4)")
    ax.set_title(f"gap {machine.gap_:.2%}, {outcome(machine)}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False)
    return ax


def groups(machine: FittedModel, ax: Any = None, n: int = 30) -> Any:
    """Plot the weights of the strongest supports, the class they speak for, and the sizes of their groups.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
    ax : matplotlib Axes, optional
    n : int
        Number of supports to show.

    Returns
    -------
    Axes
    """
    check_is_fitted(machine)
    n = min(n, len(machine.support_features_))
    ax = _new_axes(6, 0.6 + 0.24 * n) if ax is None else ax
    weights, features = machine.weights_[:n], machine.support_features_[:n].tolist()
    sides, places = machine.target_.sides(machine.output_weights_)
    names = [printable(name, _LONGEST_NAME).replace("$", r"\$") for name in sides]
    by_color = len(names) == len(CLASS_COLORS)
    ax.barh(np.arange(n), weights, color=[CLASS_COLORS[place if by_color else 0] for place in places[:n].tolist()])
    for row, (feature, weight, place) in enumerate(zip(features, weights, places, strict=False)):
        size = [] if machine.groups_ is None else [f"{len(machine.groups_[feature]):,}"]
        direction = 1 if weight > 0 else -1
        ax.annotate(
            ", ".join(size if by_color else [*size, names[place]]), (weight, row), xytext=(4 * direction, 0),
            textcoords="offset points", va="center", ha="left" if direction > 0 else "right", fontsize="small",
            color="0.35",
        )  # fmt: skip
    ax.set_yticks(np.arange(n), [_label(machine, feature) for feature in features])
    ax.invert_yaxis()
    ax.margins(x=0.12)
    ax.axvline(0, color="0.3", linewidth=0.8)
    way = f" ({names[0]} $\\leftarrow$ 0 $\\rightarrow$ {names[1]})" if machine.target_.n_outputs == 1 else ""
    members = "" if machine.groups_ is None else "\nnumbers: members of the group"
    ax.set_xlabel(f"weight{way}{members}")
    return ax


def redundancy(machine: FittedModel, ax: Any = None) -> Any:
    """Plot the correlations among the supports, similar ones side by side: the remaining redundancy.

    Parameters
    ----------
    machine : GroupDiscoveryMachine
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
    """
    check_is_fitted(machine)
    if machine.profile_ is None:
        raise BadInput("the model file is of an older version and has no correlations: fit again")
    ax = _new_axes(5, 4.2) if ax is None else ax
    rho = machine.profile_.correlations.astype(np.float64)
    order = clustered_order(rho)
    shown = np.ma.array(rho[np.ix_(order, order)], mask=np.eye(len(rho), dtype=bool))
    largest = max(float(np.abs(shown).max()), 0.01) if len(rho) > 1 else 1.0
    picture = ax.imshow(shown, cmap="PuOr_r", vmin=-largest, vmax=largest, interpolation="nearest")
    ax.figure.colorbar(picture, ax=ax, label="correlation")
    ax.set_xticks([])
    labels = [_label(machine, machine.support_features_[k]) for k in order] if len(rho) <= _NAMED else []
    ax.set_yticks(np.arange(len(labels)), labels)
    ax.set_title(f"{len(rho)} supports, redundancy rate {machine.redundancy_rate_:.4f}")
    return ax


def image_masks(machine: FittedModel, shape: tuple[int, int], data: Any = None, axes: Any = None) -> Any:
    """Show supports and affiliated features as white pixels over class mean images (the paper's Figures 1 and 6).

    Parameters
    ----------
    machine : GroupDiscoveryMachine
    shape : tuple of int
        Rows and columns; features are pixels, row by row.
    data : store, path or URL of one, or tuple (X, y), optional
        Data for the mean images; without it, the pixels are drawn on black.
    axes : ndarray of Axes of shape (2, 3), optional
        A row per class: the mean, with supports, with affiliated features. (1, 3) without data.

    Returns
    -------
    ndarray of Axes
    """
    check_is_fitted(machine)
    check_shape(shape, machine.n_features_in_)
    pixels = shape[0] * shape[1]
    means = np.zeros((1, pixels))
    if data is not None:
        found = class_means(Labelled(data, machine))
        means = np.zeros((len(found), pixels))
        means[:, : machine.n_features_in_] = found
    axes = _image_axes(len(means)) if axes is None else np.asarray(axes).reshape(len(means), 3)
    top = means.max() if means.max() > 0 else 1.0
    affiliated = _affiliated(machine)
    names = [str(name) for name in getattr(machine, "classes_", ["all samples"])]
    for k, (row, mean) in enumerate(zip(axes, means, strict=True)):
        titles = [names[k] if data is not None else "", "supports", "affiliated"]
        for ax, title, chosen in zip(row, titles, ([], machine.support_features_, affiliated), strict=True):
            picture = 0.75 * mean / top
            picture[np.asarray(chosen, np.int64)] = 1.0
            ax.imshow(picture.reshape(shape), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set_title(title.replace("$", r"\$"), fontsize="medium")
            ax.set_axis_off()
    return axes


def _image_axes(n_rows: int) -> Any:
    figure = _new_axes(6, 2.2 * n_rows).figure
    figure.clear()
    return figure.subplots(n_rows, 3, squeeze=False)


def _affiliated(model: FittedModel) -> np.ndarray:
    if model.groups_ is None:
        return np.zeros(0, np.int64)
    return np.setdiff1d(np.concatenate(list(model.groups_.values())), model.support_features_)


def stability(found: Stability, machine: FittedModel, ax: Any = None, n: int = 30) -> Any:
    """Plot how often groups, and their supports, were found on subsamples.

    Parameters
    ----------
    found : Stability
        The result of `gdm_dask.stability_selection`.
    machine : GroupDiscoveryMachine
    ax : matplotlib Axes, optional
    n : int
        Number of supports to show.

    Returns
    -------
    Axes
    """
    n = min(n, len(found.group_frequency))
    ax = _new_axes(6, 0.9 + 0.24 * n) if ax is None else ax
    rows = np.arange(n)
    ax.hlines(rows, found.support_frequency[:n], found.group_frequency[:n], color="0.8")
    ax.plot(found.group_frequency[:n], rows, "s", color=CLASS_COLORS[1], label="its group")
    ax.plot(found.support_frequency[:n], rows, "o", color=CLASS_COLORS[0], markersize=4, label="the support itself")
    ax.set_yticks(rows, [_label(machine, feature) for feature in machine.support_features_[:n].tolist()])
    ax.invert_yaxis()
    ax.set_xlim(-0.03, 1.03)
    ax.set_xlabel(f"found in this part of {found.n_repeats} fits")
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax
