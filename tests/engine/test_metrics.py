"""What operators see: Prometheus metrics of workers and drivers, and logs with an id in each line."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator

import distributed
import pytest
from helpers.clusters import FOREVER, Cluster, gdm, until

from gdm_dask import GroupDiscoveryMachine
from gdm_dask.pipeline.fit_metrics import FitMetrics
from gdm_dask.pipeline.jobs import job_log, submit_fit, wait_for_job
from gdm_dask.store.reader import READS, StoreReader

SETTINGS = {"tau": 0.4, "cut_size": 3, "max_cuts": 5, "tol": 0.0}
OPTIONS = ["--tau", "0.4", "--cut-size", "3", "--max-cuts", "5", "--tol", "0"]
LINE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? ([-+0-9.e]+|NaN|[-+]Inf)')


def parse(text: str) -> dict[str, float]:
    """Check every line, and return the values by name, without labels."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) \w+ .+", line), line
            continue
        match = LINE.fullmatch(line)
        assert match, line
        found[match[1]] = float(match[3])
    return found


@pytest.fixture
def served(tmp_path) -> Iterator[tuple[Cluster, str]]:
    """A cluster of one worker, and the URL of its metrics."""
    cluster = Cluster(tmp_path / "cluster")
    cluster.start_worker("--dashboard", "--dashboard-address", "127.0.0.1:0").wait_for(r"(Registered to)")
    with distributed.Client(cluster.address, set_as_default=False) as client:
        (worker,) = client.scheduler_info()["workers"].values()
    yield cluster, f"http://127.0.0.1:{worker['services']['dashboard']}/metrics"
    cluster.end()


def get(page: str) -> str:
    with urllib.request.urlopen(page, timeout=30) as answer:
        return answer.read().decode()


def ours(page: str) -> dict[str, float]:
    return parse("".join(line + "\n" for line in get(page).splitlines() if line.startswith(("gdm_", "# HELP gdm_"))))


@pytest.mark.cluster
def test_a_worker_counts_its_reads(store, served) -> None:
    cluster, page = served
    assert "dask_worker" in get(page)
    cluster.fault("read", "error", times=2)
    counts = []
    with distributed.Client(cluster.address, set_as_default=False) as client:
        for _ in range(2):
            GroupDiscoveryMachine(**SETTINGS, scheduler=client).fit(store)
            counts.append(ours(page))
    first, second = counts
    assert first["gdm_read_retries_total"] == second["gdm_read_retries_total"] == 2
    assert first["gdm_reads_total"] >= store.n_blocks
    assert second["gdm_reads_total"] == 2 * first["gdm_reads_total"]
    assert second["gdm_read_bytes_total"] == 2 * first["gdm_read_bytes_total"] >= store.nbytes
    assert 0 < first["gdm_read_seconds_total"] < second["gdm_read_seconds_total"]


@pytest.mark.cluster
@pytest.mark.usefixtures("read_for_each_cut")
def test_the_driver_of_a_job_shows_its_progress(store, served, tmp_path) -> None:
    cluster, page = served
    cluster.fault("cut-2", "hold", times=FOREVER)
    with distributed.Client(cluster.address, set_as_default=False) as client:
        job = submit_fit(client, store.url, str(tmp_path / "run"), SETTINGS)
        until(lambda: any("cut 2:" in line for _, line in job_log(client, job)), "the second cut")
        until(lambda: ours(page).get("gdm_fit_cuts", 0) == 2, "its metrics")
        text = get(page)
        assert f'gdm_fit_supports{{job="{job}",run="{tmp_path / "run"}"}}' in text
        shown = ours(page)
        assert shown["gdm_fit_state"] == 0
        assert 0 < shown["gdm_fit_lower_bound"] <= shown["gdm_fit_upper_bound"]
        assert 0 < shown["gdm_fit_gap"] < 1
        cluster.mend("cut-2", "hold")
        wait_for_job(client, job)
    assert "gdm_fit_cuts" not in ours(page)  # a job that has ended is in the history, not on the page


def test_a_file_for_node_exporter(store, tmp_path) -> None:
    file = tmp_path / "first.prom"
    fit = gdm(
        "--log-format", "json", "fit", store.url, "--run", tmp_path / "run", *OPTIONS, "--metrics-file", file,
        log=tmp_path / "log",
    )  # fmt: skip
    assert fit.wait() == 0, fit.text
    shown = parse(file.read_text())
    model = GroupDiscoveryMachine.load(tmp_path / "run")
    assert shown["gdm_fit_state"] == 1
    assert shown["gdm_fit_cuts"] == model.n_cuts_
    assert shown["gdm_fit_gap"] == model.history_[-1].gap
    assert shown["gdm_fit_read_bytes"] == sum(cut.bytes_read for cut in model.history_) > 0
    assert shown["gdm_reads_total"] >= store.n_blocks
    assert shown["gdm_fit_started_timestamp_seconds"] < shown["gdm_fit_updated_timestamp_seconds"] <= time.time()
    logged = [json.loads(line) for line in fit.text.splitlines() if line.startswith("{")]
    assert len({line["run"] for line in logged}) == 1
    assert sum(line["message"].startswith("cut ") for line in logged) == model.n_cuts_


def test_an_error_is_a_line_of_the_log(tmp_path) -> None:
    fit = gdm("--log-format", "json", "fit", tmp_path / "none.zarr", "--run", tmp_path / "run", log=tmp_path / "log")
    assert fit.wait() == 2
    (line,) = [json.loads(line) for line in fit.text.splitlines()]
    assert "none.zarr: there is no feature store here" in line["message"]
    assert (line["level"], line["exit_code"]) == ("error", 2)
    assert line["run"]


def test_a_fit_that_fails_says_so_in_its_file(tmp_path) -> None:
    file = tmp_path / "x.prom"
    metrics = FitMetrics({"run": 'a"b'}, file)
    with metrics:
        assert parse(file.read_text())["gdm_fit_state"] == 0
    metrics.__enter__()
    metrics.__exit__(ValueError)
    assert parse(file.read_text())["gdm_fit_state"] == -1
    assert 'run="a\\"b"' in file.read_text()


def test_a_file_that_cannot_be_written_does_not_stop_a_fit(tmp_path, caplog) -> None:
    with FitMetrics({}, tmp_path / "nowhere" / "x.prom"):
        pass
    assert caplog.text.count("x.prom: the metrics cannot be written: No such file or directory") == 1


def count() -> dict[str, float]:
    return {metric.name: metric.value for metric in READS.metrics()}


def test_reads_of_other_processes_are_counted_here(store) -> None:
    before = count()
    machine = GroupDiscoveryMachine(3, scheduler="processes", n_workers=1).fit(store)
    added = count()["gdm_reads_total"] - before["gdm_reads_total"]
    assert added >= machine.counts_["blocks_read"] > 0
    assert count()["gdm_read_bytes_total"] > before["gdm_read_bytes_total"]


def test_reads_are_counted_in_this_process(store) -> None:
    before = count()
    sizes = [block.nbytes for block in StoreReader(store, 1).blocks([0, 1])]
    after = count()
    assert after["gdm_reads_total"] - before["gdm_reads_total"] == 2
    assert after["gdm_read_bytes_total"] - before["gdm_read_bytes_total"] == sum(sizes)
