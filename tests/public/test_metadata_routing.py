"""scikit-learn's metadata routing: sample weights reach fit and score through pipelines and cross-validation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor

N = 90
RNG = np.random.default_rng(0)
SIGNAL, DECOY = RNG.normal(size=(2, N))
HAS_WEIGHT = np.arange(N) % 3 > 0
X = np.column_stack([SIGNAL, DECOY, RNG.normal(size=(N, 3))])
#: The target follows the first feature where there is a weight, and the second one, strongly, elsewhere.
NUMBERS = np.where(HAS_WEIGHT, SIGNAL, 20 * DECOY)
CASES = [(GroupDiscoveryMachine, np.where(NUMBERS > 0, "yes", "no")), (GroupDiscoveryRegressor, NUMBERS)]
WEIGHTS = HAS_WEIGHT.astype(float)


@pytest.fixture(autouse=True)
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def requesting(kind, **parameters):
    model = kind(1, groups=False, scheduler="synchronous", **parameters)
    return model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)


@pytest.mark.parametrize(("kind", "y"), CASES)
def test_weights_reach_a_step_of_a_pipeline(kind, y) -> None:
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    pipeline = Pipeline([("scale", scaler), ("select", requesting(kind))]).fit(X, y, sample_weight=WEIGHTS)
    alone = requesting(kind).fit(StandardScaler().fit_transform(X), y, WEIGHTS)
    assert pipeline[-1].support_features_.tolist() == [0]
    assert pipeline[-1].coef_.tolist() == alone.coef_.tolist()
    weighted, plain = (pipeline.score(X, y, **given) for given in ({"sample_weight": WEIGHTS}, {}))
    assert weighted > 0.9 > plain


@pytest.mark.parametrize(("kind", "y"), CASES)
def test_weights_reach_the_folds_of_a_cross_validation(kind, y) -> None:
    found = cross_validate(requesting(kind), X, y, params={"sample_weight": WEIGHTS}, cv=3, return_estimator=True)
    assert [model.support_features_.tolist() for model in found["estimator"]] == [[0]] * 3
    assert found["test_score"].min() > 0.8


@pytest.mark.parametrize(("kind", "y"), CASES)
def test_weights_reach_a_grid_search(kind, y) -> None:
    pipeline = Pipeline([("scale", MaxAbsScaler()), ("select", requesting(kind))])
    search = GridSearchCV(pipeline, {"select__tau": [0.1, 0.5]}, cv=2).fit(X, y, sample_weight=WEIGHTS)
    assert search.best_score_ > 0.8
    assert search.best_estimator_[-1].support_features_.tolist() == [0]


def test_weights_that_are_not_requested_are_refused() -> None:
    with pytest.raises(ValueError, match="sample_weight"):
        cross_validate(GroupDiscoveryMachine(1), X, CASES[0][1], params={"sample_weight": WEIGHTS}, cv=2)
