"""The live display of a fit, on a terminal and in a notebook."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.report_cases import HOSTILE, fitted, grouped
from helpers.store_helpers import on_a_terminal
from rich.console import Console

from gdm_dask import GroupDiscoveryMachine, ingest
from gdm_dask.cli.console import CutView, live_cuts
from gdm_dask.notebook import FitProgress, card


def shown(view: CutView) -> str:
    console = Console(width=140, file=io.StringIO())
    console.print(view)
    return console.file.getvalue()


def test_view_follows_the_cuts() -> None:
    now = [0.0]
    machine = fitted()
    view = CutView(40, None, 1e-3, clock=lambda: now[0])
    assert view.seconds_left() is None
    assert "finding the first cut" in shown(view)
    for iteration in machine.history_:
        now[0] += 2.0
        view.add(iteration)
        text = shown(view)
        assert f"{iteration.gap:.2%}" in text
    done = view.done()
    assert view.seconds_left() == pytest.approx(now[0] * (1 - done) / done)


def test_view_of_a_wanted_number_shows_no_bounds() -> None:
    view = CutView(40, 6, 1e-3)
    view.add(fitted().history_[0])
    text = shown(view)
    assert "best score" in text
    assert "gap" not in text


def test_rate_is_that_of_the_last_read() -> None:
    view, cut = CutView(40, 6, 1e-3), fitted().history_[0]
    view.add(replace(cut, seconds={"scores": 2.0}))
    view.add(replace(cut, seconds={"scores": 0.0}, bytes_read=0))
    assert " 20 features/s" in shown(view)


def test_line_of_a_cut_names_its_goal() -> None:
    cut = replace(fitted().history_[0], number=3, n_supports=15, n_new=5, bytes_read=0, gap=0.25)
    assert str(replace(cut, n_entering=100)).startswith("cut 3: 15 of 100 supports (+5), best score ")
    assert "gap" not in str(replace(cut, n_entering=100))
    assert "gap 25.00%, " in str(replace(cut, n_entering=None))


def test_way_to_a_gap_is_measured_by_its_logarithm() -> None:
    view = CutView(40, None, 1e-4)
    for gap, done in ((1.0, 0.0), (1e-2, 0.5), (1e-4, 1.0), (1e-6, 1.0)):
        view.add(replace(fitted().history_[0], gap=gap))
        assert view.done() == pytest.approx(done)


def test_no_terminal_no_view() -> None:
    got: list = []
    with live_cuts(40, 6, 1e-3, got.append, Console(file=io.StringIO())) as on_cut:
        on_cut("a cut")
    assert got == ["a cut"]


def test_fit_draws_on_a_terminal(tmp_path: Path) -> None:
    ingest(grouped()[0], tmp_path / "data.zarr", grouped()[1])
    code, output, seen = on_a_terminal("fit", tmp_path / "data.zarr", "--run", tmp_path / "run", "-k", 3)
    assert (code, "supports" in output, "best score" in seen) == (0, True, True), seen


def test_a_log_for_machines_is_one_on_a_terminal_too(tmp_path: Path) -> None:
    store, run = tmp_path / "data.zarr", tmp_path / "run"
    for words in (["synth", "--like", "paper", "--scale", 0.03, store], ["fit", store, "--run", run, "-k", 3]):
        code, _, seen = on_a_terminal("--log-format", "json", *words)
        assert code == 0, seen
        assert [json.loads(line)["level"] for line in seen.splitlines()], words


def test_card_has_the_supports_and_escapes_names() -> None:
    machine = fitted(HOSTILE, n_features_to_select=len(HOSTILE))
    text = card(machine)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "and 2 more" in text
    assert len(text) < 10_000


def test_notebooks_get_the_card() -> None:
    machine = fitted()
    assert machine._repr_mimebundle_()["text/html"] == machine._repr_html_() == card(machine)
    before = GroupDiscoveryMachine()
    assert "GroupDiscoveryMachine" in before._repr_html_()
    assert before._repr_mimebundle_()["text/html"]


def test_notebook_progress_updates_one_display(monkeypatch) -> None:
    display = pytest.importorskip("IPython.display")
    told = []

    class Handle:
        def update(self, page) -> None:
            told.append(("again", page.data))

    def show(page, display_id: bool) -> Handle:
        told.append(("first", page.data))
        return Handle()

    monkeypatch.setattr(display, "display", show)
    X, y = grouped()
    machine = GroupDiscoveryMachine(5, scheduler="synchronous").fit(X, y, callback=FitProgress())
    assert [kind for kind, _ in told] == ["first"] + ["again"] * (len(machine.history_) - 1)
    assert f"cut {machine.n_cuts_}" in told[-1][1]
    assert ("<progress" in told[-1][1], "<svg" in told[-1][1]) == (True, False)
    without_goal = FitProgress().html(replace(machine.history_[-1], n_entering=None))
    assert ("<progress" in without_goal, "<svg" in without_goal) == (False, True)
