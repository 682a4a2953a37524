"""The paper's synthetic data (section 4.1): groups of correlated features with known members, hidden in noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gdm_dask.errors import BadInput


@dataclass(frozen=True)
class GroupedData:
    """A training set, a test set, and the truth about them."""

    X: np.ndarray  # (n_samples, n_features), float32
    y: np.ndarray  # -1 or +1
    X_test: np.ndarray
    y_test: np.ndarray
    groups: list[np.ndarray]  # members of each predictive group, sorted
    weights: np.ndarray  # predictive power of each group


def make_paper_data(
    n_samples: int = 2048,
    n_features: int = 10_000,
    n_groups: int = 200,
    n_multiple: int = 30,
    largest_group: int = 20,
    correlation: float = 0.95,
    seed: int = 0,
) -> GroupedData:
    """Generate data as in section 4.1 of the paper.

    Each group has a latent standard normal variable. The label is the sign of the sum of these variables, weighted by
    N(0, 1) weights. The members of a group are its latent variable plus noise, such that two of them have the
    correlation `correlation`; all other features are noise. The paper specifies neither the sizes of the groups nor the
    correlation; here the groups with several members have 2 to `largest_group` of them.

    The test set has as many samples as the training set. Of the `n_groups` predictive groups, `n_multiple` have several
    members, up to `largest_group`.

    Examples
    --------
    >>> data = make_paper_data(n_samples=50, n_features=40, n_groups=5, n_multiple=2, largest_group=4)
    >>> data.X.shape, len(data.groups), sum(len(group) > 1 for group in data.groups)
    ((50, 40), 5, 2)
    """
    rng = np.random.default_rng(seed)
    sizes = np.ones(n_groups, np.int64)
    sizes[:n_multiple] = rng.integers(2, largest_group + 1, n_multiple)
    if sizes.sum() > n_features:
        raise BadInput(f"`n_features` must be at least {sizes.sum()}, the size of all groups, got {n_features}")
    places = rng.permutation(n_features)[: sizes.sum()]
    groups = [np.sort(part) for part in np.split(places, np.cumsum(sizes)[:-1])]
    weights = rng.standard_normal(n_groups)

    def sample() -> tuple[np.ndarray, np.ndarray]:
        latent = rng.standard_normal((n_samples, n_groups))
        X = rng.standard_normal((n_samples, n_features), np.float32)
        for group, column in zip(groups, latent.T, strict=True):
            if len(group) == 1:
                X[:, group[0]] = column
            else:
                X[:, group] *= np.sqrt(1 - correlation)
                X[:, group] += np.sqrt(correlation) * column[:, None]
        return X, np.where(latent @ weights > 0, 1, -1)

    return GroupedData(*sample(), *sample(), groups, weights)


@dataclass(frozen=True)
class GroupRecovery:
    """Comparison of found groups with planted ones."""

    n_found: int  # planted groups with a support among their members
    n_planted: int
    precision: float  # share of the supports that belong to a planted group
    f1: float  # mean F1 of the members, over the found planted groups with several members; NaN if there is none


def compare_groups(found: dict[int, np.ndarray], planted: list[np.ndarray]) -> GroupRecovery:
    """Compare the groups of a fitted machine with the truth.

    Examples
    --------
    >>> compare_groups({3: np.array([2, 3]), 9: np.array([9])}, [np.array([2, 3, 4]), np.array([7])])
    GroupRecovery(n_found=1, n_planted=2, precision=0.5, f1=0.8)
    """
    home = {int(feature): number for number, group in enumerate(planted) for feature in group}
    hit = {home[support] for support in found if support in home}
    scores = []
    for support, members in found.items():
        truth = set(planted[home[support]].tolist()) if support in home else set()
        if len(truth) > 1:
            scores.append(2 * len(truth & set(members.tolist())) / (len(truth) + len(members)))
    precision = sum(support in home for support in found) / max(1, len(found))
    return GroupRecovery(len(hit), len(planted), precision, float(np.mean(scores)) if scores else float("nan"))
