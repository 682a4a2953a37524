"""Cliques and components equal brute force, in any batches, with the reads that they are said to take."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import reference
from helpers.instances import data_of, kinds, make, many, measures, memory, seeds, suited
from hypothesis import given
from hypothesis import strategies as st

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, ingest, load_model, stability_selection
from gdm_dask.cutting_plane import linkage
from gdm_dask.cutting_plane.fit import affiliations, groups_of
from gdm_dask.cutting_plane.linkage import Linker
from gdm_dask.features.correlation import correlation_limit
from gdm_dask.features.groups import GroupPass, Pairs
from gdm_dask.features.measures import MEASURES
from gdm_dask.features.ranking import ALL_SAMPLES, Fold

taus = st.sampled_from([0.1, 0.25, 0.5, 0.8])
REFERENCES = {"clique": reference.cliques, "component": reference.components}


def linked(
    name: str, X: np.ndarray, supports: list[int], tau: float, measure: str, sparse: bool, fold: Fold = ALL_SAMPLES
) -> tuple[Pairs, int]:
    """Pairs by a linkage, and the reads that they took after the stars."""
    store, limit = memory(X, sparse, 2000), correlation_limit(tau)
    rows = fold.of(store.rows(np.array(supports)))
    with data_of(store) as data:
        stars = data.run(GroupPass(MEASURES[measure].search(rows, limit), fold))
        linker = Linker(data, fold, MEASURES[measure], limit, np.array(supports), rows)
        return linker.link(stars, name), data.counts.passes - 1


def members(pairs: Pairs, supports: list[int]) -> dict[int, list[int]]:
    return {support: group.tolist() for support, group in groups_of(pairs, np.array(supports)).items()}


def some_supports(X: np.ndarray, tau: float, measure: str, seed: int) -> list[int]:
    """Features of which no two correlate."""
    scores = np.random.default_rng(seed).random(len(X)) * (np.ptp(X, axis=1) > 0)
    return reference.greedy_cut(scores, reference.correlated(X, tau, measure), 3, [])


@many(120)
@given(
    st.sampled_from(sorted(REFERENCES)), measures, kinds, st.integers(2, 30), st.integers(3, 40), taus, st.booleans(),
    st.sampled_from([1, 3, 2048]), seeds,
)  # fmt: skip
def test_groups_equal_brute_force(name, measure, kind, m, n, tau, sparse, step, seed) -> None:
    X = suited(make(kind, m, n, seed), measure)
    supports = some_supports(X, tau, measure, seed)
    if not supports:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linkage, "LINK_ROWS", step)
        pairs, n_reads = linked(name, X, supports, tau, measure, sparse)
    assert members(pairs, supports) == REFERENCES[name](X, supports, tau, measure)
    np.testing.assert_array_equal(np.lexsort((pairs.support, pairs.feature)), np.arange(len(pairs.feature)))
    values = reference.measured(X, measure)
    np.testing.assert_allclose(pairs.rho, values[np.array(supports)[pairs.support], pairs.feature], atol=1e-9)
    assert name == "component" or n_reads == 0


@pytest.mark.parametrize("name", REFERENCES)
def test_samples_of_a_fold_and_their_weights(name) -> None:
    X = make("groups", 30, 60, 2)
    samples, times = np.arange(0, 60, 2), np.random.default_rng(0).integers(0, 3, 30)
    repeated = np.repeat(X[:, samples], times, axis=1)
    supports = some_supports(repeated, 0.25, "pearson", 0)
    pairs, _ = linked(name, X, supports, 0.25, "pearson", False, Fold(samples, times.astype(float)))
    assert members(pairs, supports) == REFERENCES[name](repeated, supports, 0.25)


def chain(length: int = 12, n: int = 1000, seed: int = 0) -> np.ndarray:
    """Rows of which neighbours correlate by about 7/8, others by 6/8 at most."""
    steps = np.random.default_rng(seed).normal(size=(length + 7, n))
    return np.vstack([steps[k : k + 8].sum(axis=0) for k in range(length)])


def test_a_chain_is_a_component_and_takes_a_read_for_each_link() -> None:
    X = chain()
    pairs, n_reads = linked("component", X, [0], 0.19, "pearson", False)
    assert members(pairs, [0]) == {0: list(range(12))}
    assert n_reads == 11
    assert members(linked("clique", X, [4], 0.19, "pearson", False)[0], [4]) in ({4: [3, 4]}, {4: [4, 5]})


def test_supports_that_are_linked_share_their_members_but_not_their_own() -> None:
    X = chain(5)
    pairs, _ = linked("component", X, [0, 4], 0.19, "pearson", False)
    assert members(pairs, [0, 4]) == {0: [0, 1, 2, 3, 4], 4: [0, 1, 2, 3, 4]}
    table = affiliations(pairs, np.array([0, 4]))
    owned = table[table.owner].set_index("feature").support.to_dict()
    assert {feature: owned[feature] for feature in (0, 1, 3, 4)} == {0: 0, 1: 0, 3: 4, 4: 4}


def test_no_correlation_beyond_1_is_shown() -> None:
    pairs = Pairs(np.array([0, 0]), np.array([3, 7]), np.array([1.0 + 2e-16, -1.0 - 2e-16]), 2, 0)
    assert affiliations(pairs, np.array([3])).correlation.tolist() == [1.0, -1.0]


@pytest.mark.parametrize(("limits", "n_links"), [({"MAX_LINKS": 3}, 3), ({"MAX_LINKED": 5}, 4), ({"MAX_LINKED": 1}, 0)])
def test_components_stop_at_a_limit_with_a_warning(monkeypatch, limits, n_links) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(linkage, name, value)
    within = f"within {n_links} links" if n_links else "of its star"
    with pytest.warns(UserWarning, match=rf"linkage='component' stopped: 1 more features are linked.* {within}"):
        pairs, n_reads = linked("component", chain(), [0], 0.19, "pearson", False)
    assert members(pairs, [0]) == {0: list(range(1 + max(1, n_links)))}
    assert n_reads == n_links


def test_near_members_of_a_clique_are_not_read_again(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(1, 300)) + 0.1 * rng.normal(size=(20, 300)), rng.normal(size=(5, 300))])
    monkeypatch.setattr(Linker, "_read", lambda *_: pytest.fail("no row is needed"))
    assert members(linked("clique", X, [0], 0.25, "pearson", False)[0], [0]) == {0: list(range(20))}


def bent() -> tuple[np.ndarray, np.ndarray]:
    """Samples x features: two chains, and labels that their ends tell."""
    X = np.vstack([chain(6), chain(6, seed=1)])
    return X.T, np.where(2 * X[0] - X[6] > 0, 1, -1)


@pytest.mark.parametrize("name", REFERENCES)
def test_fits_files_and_stability_use_the_linkage(tmp_path, name) -> None:
    X, y = bent()
    machine = GroupDiscoveryMachine(2, tau=0.19, linkage=name).fit(X, y)
    supports = machine.support_features_.tolist()
    groups = {support: group.tolist() for support, group in machine.groups_.items()}
    assert groups == REFERENCES[name](X.T, supports, 0.19)
    machine.save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert model.linkage == name
    assert {support: group.tolist() for support, group in model.groups_.items()} == groups
    store = ingest(X, tmp_path / "x.zarr", y, block_bytes=8192)
    again = GroupDiscoveryMachine(2, tau=0.19, linkage=name, scheduler="threads").fit(store)
    for column in ("support", "feature", "owner"):
        np.testing.assert_array_equal(again.affiliations_[column], machine.affiliations_[column])
    assert max(stability_selection(machine, X, y, n_repeats=2).group_frequency) > 0
    assert (tmp_path / "report.html").write_text(machine.report())


def test_a_regressor_uses_the_linkage() -> None:
    X, _ = bent()
    machine = GroupDiscoveryRegressor(1, tau=0.19, linkage="component").fit(X, X[:, 0])
    assert machine.groups_[0].tolist() == list(range(6))
