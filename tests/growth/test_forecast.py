"""A forecast agrees with the fit's memory plan, grows with the work, and names what does not fit."""

from dataclasses import replace

import numpy as np
import pytest

from gdm_dask.cutting_plane.memory import planned_work
from gdm_dask.growth.forecast import Cluster, forecast
from gdm_dask.growth.rates import Rates
from gdm_dask.growth.size import Size, shares
from gdm_dask.settings.settings import choose_settings

DRIVER = {"matching": 1.0, "master": 2.0, "polish": 1.0, "refit": 0.5}
RATES = Rates(
    1.5e-9, 1e-9, 3e-9, 1e-9, 1.0, DRIVER, dict.fromkeys(DRIVER, 1e-6), 1.0, np.full(2048, 0.01), 40.0
)  # fmt: skip
LAPTOP = Cluster(0, 4, 16 * 10**9)
GRID = Cluster(64, 4, 16 * 10**9, 1e9)


def size(n_samples: int = 100_000, decoded: int = 10**10, n_blocks: int = 160, **changes) -> Size:
    facts = {
        "name": "x", "n_features": 10**7, "n_samples": n_samples, "nnz": decoded // 8,
        "class_counts": (n_samples / 2, n_samples / 2), "is_sparse": True, "task": "two classes",
        "n_outputs": 1,
        "largest_rows": lambda n_rows: n_rows * n_samples // 10,
        "block_bytes": shares(decoded, n_blocks), "block_rows": shares(10**7, n_blocks),
        "stored_bytes": decoded // 2, "manifest_bytes": 1000 * n_blocks,
    }  # fmt: skip
    return Size(**facts | changes)


def settings_for(data: Size):
    return choose_settings(data.n_features, data.n_samples, counts=data.class_counts, k=100, C="auto")


def plan_of(data: Size, cluster: Cluster = LAPTOP, rates: Rates = RATES, groups: bool = True):
    settings = settings_for(data)
    return forecast(data, settings, 100, rates, cluster, groups)


@pytest.mark.parametrize("cluster", [LAPTOP, GRID], ids=["threads", "cluster"])
def test_memory_and_reads_are_those_of_the_fits_own_plan(cluster):
    data = size()
    found = plan_of(data, cluster)
    work = planned_work(data.block_bytes, data.block_rows, data.n_samples, settings_for(data))
    plan = work.plan(None if cluster.n_workers else cluster.memory, not cluster.n_workers)
    workers = cluster.workers()
    assert found.reads == work.n_passes == 3
    assert found.memory["driver"] == work.driver_bytes
    assert found.memory["worker"] == plan.needed(workers[0])
    assert not found.limits


def test_requests_to_an_object_store_take_memory_in_each_thread():
    local, remote = plan_of(size(), GRID), plan_of(size(bytes_ahead=10**7), GRID)
    assert remote.memory["worker"] - local.memory["worker"] == GRID.threads * 10**7


def test_each_pass_reads_everything():
    found = plan_of(size(decoded=10**9))
    assert found.decoded_bytes == 3 * 10**9
    assert found.stored_bytes == 3 * 10**9 // 2
    assert plan_of(size(decoded=10**9), groups=False).reads == 2


def test_seconds_by_hand():
    found = plan_of(size(decoded=10**9, bytes_ahead=1))
    rows = 2 * 2048 * 1000 * 1e-9  # two reads bring 2,048 rows with a hundredth of the samples
    assert found.seconds["scores"] == pytest.approx((2.0 + 1.0 + rows) / 4)
    assert found.seconds["groups"] == pytest.approx(3.5 / 4)
    assert found.seconds["master"] == pytest.approx(2.0 + 0.1)
    assert found.total_seconds == pytest.approx(sum(found.spent.values()))
    assert found.processor_seconds == pytest.approx(3.0 + rows + 3.5 + 4.5 + 0.4)


def test_more_workers_share_the_passes_and_not_the_driver():
    few, many = (plan_of(size(decoded=10**12, n_blocks=16_000), Cluster(n, 1, 16 * 10**9)) for n in (10, 100))
    assert few.spent["workers"] == pytest.approx(10 * many.spent["workers"], rel=0.05)
    assert few.seconds["master"] == many.seconds["master"]
    assert many.traffic["to workers"] > 9 * few.traffic["to workers"]
    assert few.traffic["to driver"] == many.traffic["to driver"]


@pytest.mark.parametrize(
    ("data", "cluster", "word"),
    [
        (size(decoded=10**12, n_blocks=16_000), Cluster(8, 1, 16 * 10**9), "more workers"),
        (size(decoded=10**12, n_blocks=16_000), Cluster(8, 1, 16 * 10**9, 1e7), "store"),
        (size(n_samples=10**8), Cluster(8, 1, 10**12), "driver"),
        (size(n_samples=10**6), Cluster(1000, 1, 10**12, 1e7), "vectors and rows"),
        (size(n_blocks=10**5, manifest_bytes=10**6), Cluster(1000, 25, 10**11), "scheduling"),
    ],
    ids=["workers", "store", "driver", "network", "scheduler"],
)
def test_bottleneck_is_named(data, cluster, word):
    assert word in plan_of(data, cluster).bottleneck


@pytest.mark.parametrize(
    ("data", "cluster", "word"),
    [
        (size(n_features=2**32), GRID, "32 bits"),
        (size(block_bytes=[2**31], block_rows=[1]), Cluster(8, 1, 10**11), "in nearly all samples"),
        (size(), Cluster(8, 32, 10**9), "worker needs"),
        (size(n_samples=10**8), GRID, "driver needs"),
        (size(), Cluster(0, 2, 5 * 10**8), "driver needs"),
        (size(manifest_bytes=10**9), GRID, "--block-size"),
    ],
    ids=["features", "row", "worker", "driver", "threads", "manifest"],
)
def test_what_does_not_fit_is_named(data, cluster, word):
    found = plan_of(data, cluster)
    assert any(word in limit for limit in found.limits), found.limits
    assert found.bottleneck == found.limits[0]


def test_long_rows_need_more_reads():
    assert plan_of(size(n_samples=10**6)).reads == 3
    assert plan_of(size(n_samples=10**8)).reads == 11  # each brings the rows of two cuts


def folds(n_blocks: int = 160, decoded: int = 10**9) -> Size:
    """Few samples, so that folds choose C: four candidates on all samples and on four folds."""
    return size(n_samples=2_000, decoded=decoded, n_blocks=n_blocks)


def test_folds_are_problems_that_share_the_reads():
    data, driver = folds(), {**DRIVER, "folds": 7.0}
    rates = replace(RATES, union=3.0, fixed=driver, per_sample=dict.fromkeys(driver, 0.0))
    found = plan_of(data, GRID, rates)
    assert (found.problems, found.at_once) == (20, 20)
    assert found.reads == 3
    assert found.seconds["folds"] == 7
    work = planned_work(data.block_bytes, data.block_rows, data.n_samples, settings_for(data))
    assert work.n_problems == 20
    assert found.memory["driver"] == work.driver_bytes
    assert found.memory["worker"] == work.plan(None, in_driver=False).needed(GRID.workers()[0])
    alone = plan_of(data, GRID, replace(rates, union=1.0))
    assert found.traffic["among workers"] > 1.2 * alone.traffic["among workers"]
    vectors, supports = (20 * 2 + 1) * 8 * 2_000, 24 * 100 * 20
    assert found.traffic["to workers"] == 65 * (vectors + supports)


def test_folds_take_turns_where_memory_is_short():
    data = replace(folds(decoded=10**8, n_blocks=16), largest_rows=lambda n_rows: n_rows * 2 * 2_000)
    settings = settings_for(data)
    work = planned_work(data.block_bytes, data.block_rows, 2_000, settings, data.largest_rows(300), n_problems=5)
    roomy = plan_of(data)
    tight = plan_of(data, Cluster(0, 4, work.driver_bytes + 4 * work.task_bytes))
    assert roomy.at_once == 20
    assert tight.at_once == 5
    assert tight.reads == (4 + 1) * 2 + 1  # 16 problems on folds in turns of five, then the winner
    assert not tight.limits
    assert tight.processor_seconds < roomy.processor_seconds + 5 * 2 * 2e-9 * data.decoded_bytes


def test_many_samples_make_one_problem():
    assert plan_of(size(n_samples=2_500)).problems == 1
    assert plan_of(size(n_samples=2_490)).problems > 1
    assert plan_of(size(n_samples=10_000, class_counts=(100, 9_900))).problems > 1
