"""A report agrees with the machine in all its formats, and treats names as text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from helpers.instances import many
from helpers.report_cases import HOSTILE, enormous, fitted, grouped
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gdm_dask import GroupDiscoveryMachine, GroupDiscoveryRegressor, ingest, plot, stability_selection
from gdm_dask.errors import BadInput
from gdm_dask.notebook import card
from gdm_dask.report import gather, render
from gdm_dask.report.groups import MEMBER_BUDGET
from gdm_dask.report.write import embed
from gdm_dask.system.resources import level


@pytest.fixture(scope="module")
def machine() -> GroupDiscoveryMachine:
    return fitted()


def test_numbers_are_those_of_the_machine(machine) -> None:
    report = gather(machine)
    assert report["facts"]["n_supports"] == 6
    assert report["supports"]["feature"] == machine.support_features_.tolist()
    np.testing.assert_allclose(report["supports"]["weight"], machine.weights_, rtol=1e-5)
    X, y = grouped()
    frequency = np.stack([(X[y == label][:, machine.support_features_] != 0).sum(axis=0) for label in ("no", "yes")])
    assert report["supports"]["frequency"] == frequency.tolist()
    means = np.stack([X[y == label][:, machine.support_features_].mean(axis=0) for label in ("no", "yes")])
    np.testing.assert_allclose(report["supports"]["class_means"], means, rtol=1e-4, atol=1e-6)
    assert report["data"]["class_counts"] == [(y == "no").sum(), (y == "yes").sum()]


def words(machine: GroupDiscoveryMachine) -> list[str]:
    """Collect all texts about how a fit ended."""
    report = gather(machine)
    return [report["sentence"], render(report, "md"), card(machine), plot.convergence(machine).get_title()]


def test_a_fit_with_k_stops_at_k_supports() -> None:
    machine = fitted(n_features_to_select=3)
    assert not machine.converged_
    for text in words(machine):
        assert "stopped at 3 supports" in text
        assert "not converged" not in text
        assert "not proved" not in text
        assert "explain at least" not in text


def test_too_few_supports_are_said_to_be_too_few() -> None:
    with pytest.warns(UserWarning, match="fewer than"):
        machine = fitted(n_features_to_select=39)
    assert all(f"stopped at {len(machine.support_features_)} of 39 supports" in text for text in words(machine))


@pytest.mark.parametrize(("tol", "state"), [(1e-9, "not converged"), (0.9, "converged")])
def test_a_fit_without_k_converges_or_not(tol: float, state: str) -> None:
    machine = fitted(n_features_to_select=None, tol=tol, max_cuts=2)
    assert f"gap {machine.gap_:.3g}, {state} |" in render(gather(machine), "md")
    assert "stopped at" not in "".join(words(machine))


@pytest.mark.parametrize(("tau", "kind"), [(0.25, "uncorrelated features"), (0.0, "features")])
def test_a_certificate_is_one_sentence(tau: float, kind: str) -> None:
    machine = fitted(certify=True, tau=tau)
    machine.certified_share_ = 0.87699  # rounded down: no more is proved
    n_reads = machine.counts_["certify_passes"]
    expected = f"The supports explain at least 87.6% of what any 6 {kind} can explain; the proof took {n_reads} reads"
    for text in words(machine)[:3]:
        assert expected in text
    machine.certified_share_ = 0.0
    assert "Nothing could be proved about the best 6" in words(machine)[0]


def test_scores_are_those_of_the_cuts(machine) -> None:
    scores = dict(zip(machine.support_features_.tolist(), gather(machine)["supports"]["scores"], strict=True))
    for iteration in machine.history_:
        for feature, score in zip(iteration.cut, iteration.scores, strict=True):
            if feature in scores:
                assert [iteration.number, pytest.approx(score, abs=1e-8)] in scores[feature]
    best = [max(map(abs, iteration.scores)) for iteration in machine.history_]
    assert all(b <= iteration.best_score + 1e-12 for b, iteration in zip(best, machine.history_, strict=True))


def test_groups_are_whole_with_the_support_first(machine) -> None:
    groups = gather(machine)["groups"]
    for k, (support, members) in enumerate(machine.groups_.items()):
        assert groups["feature"][k][0] == support
        assert sorted(groups["feature"][k]) == members.tolist()
        assert sum(groups["positive"][k]) + sum(groups["negative"][k]) == groups["size"][k] == len(members)
        assert groups["rho"][k][1:] == sorted(groups["rho"][k][1:], key=abs, reverse=True)


def test_features_of_several_groups_name_their_owner() -> None:
    machine = fitted(tau=0.7, n_features_to_select=4)
    table = machine.affiliations_
    report = gather(machine)
    place = {int(f): k for k, f in enumerate(machine.support_features_)}
    owner = {int(f): place[int(s)] for s, f, _, mine in table.itertuples(index=False) if mine}
    for k, others in enumerate(report["groups"]["others"]):
        for position, at in others:
            assert at != k
            assert owner[report["groups"]["feature"][k][position]] == at
    assert sum(map(len, report["groups"]["others"])) == (~table["owner"]).sum()


def test_map_is_a_permutation_of_the_correlations(machine) -> None:
    found = gather(machine)["map"]
    rho = np.corrcoef(grouped()[0][:, machine.support_features_].T)[np.ix_(found["order"], found["order"])]
    np.testing.assert_allclose(np.array(found["percent"]) / 100, rho[np.tril_indices(len(rho), -1)], atol=0.006)


def test_long_groups_are_cut_and_counted() -> None:
    report = gather(enormous(50, 200_000))
    assert report["groups"]["size"][7] == 200_000
    assert sum(map(len, report["groups"]["feature"])) <= MEMBER_BUDGET
    assert sum(report["groups"]["positive"][7]) + sum(report["groups"]["negative"][7]) == 200_000


@many(100)
@given(st.lists(st.integers(1, 200), min_size=1, max_size=20), st.integers(1, 500))
def test_level_is_the_largest_that_fits(sizes: list[int], budget: int) -> None:
    found = level(np.array(sizes), budget)

    def total(limit: int) -> int:
        return sum(min(size, limit) for size in sizes)

    assert total(found) <= budget or found == 1
    assert found >= max(sizes) or total(found + 1) > budget


def test_report_without_groups_profile_or_names() -> None:
    machine = fitted(groups=False)
    machine.profile_ = None
    report = gather(machine)
    assert report["groups"] is None
    assert report["map"] is None
    for form in ("html", "md", "json"):
        assert "6" in render(report, form)


def test_one_support_and_no_constraint() -> None:
    for parameters in ({"n_features_to_select": 1}, {"tau": 0}):
        report = gather(fitted(**parameters))
        json.loads(render(report, "json"))
        assert "support" in render(report, "md")


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_report_is_written_where_asked(machine, tmp_path: Path, form: str) -> None:
    text = machine.report(tmp_path / f"report.{form}")
    assert (tmp_path / f"report.{form}").read_text("utf-8") == text


def test_report_returns_html_without_a_path(machine) -> None:
    assert machine.report().startswith("<!doctype html>")


def test_a_notebook_shows_the_name_of_a_report_and_not_its_text(machine, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert re.fullmatch(re.escape(f"<{path}, ") + r"[\d.]+ kB>", repr(machine.report(path)))
    assert re.fullmatch(r"<report, [\d.]+ kB>", repr(machine.report()))


def test_other_forms_are_refused(machine, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\.html, \.md or \.json"):
        machine.report(tmp_path / "report.pdf")
    with pytest.raises(BadInput, match="folder for the report does not exist"):
        machine.report(tmp_path / "missing" / "report.html")


class Scripts(HTMLParser):
    """Counts elements and collects references to other resources."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append(tag)
        self.references += [value for name, value in attrs if name in ("src", "href", "srcset", "action")]


def test_page_refers_to_nothing_outside(machine) -> None:
    page = Scripts()
    text = machine.report()
    page.feed(text)
    assert page.tags.count("script") == 2
    assert all(reference.startswith(("#", "data:")) for reference in page.references)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "default-src 'none'" in text


def test_hostile_names_stay_inside_the_data() -> None:
    plain, hostile = Scripts(), Scripts()
    plain.feed(fitted(n_features_to_select=len(HOSTILE)).report())
    text = fitted(HOSTILE, n_features_to_select=len(HOSTILE)).report(title="</title><script>1</script>")
    hostile.feed(text)
    assert hostile.tags == plain.tags
    assert text.encode().decode() == text


@many(100)
@given(st.text())
def test_embedded_json_is_safe_and_whole(text: str) -> None:
    found = embed({text: [text]})
    assert json.loads(found) == {text: [text]}
    assert found.isascii()
    assert not set("<>&") & set(found)


def test_markdown_escapes_names() -> None:
    text = render(gather(fitted(HOSTILE, n_features_to_select=len(HOSTILE))), "md")
    assert "<script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| 5 |")]
    assert len(rows[0]) < 500
    assert "(10,005 characters)" in rows[0].replace("\\", "")


def test_markdown_counts_samples_by_class_or_all() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8))
    regressor = GroupDiscoveryRegressor(2).fit(X, X[:, 0] + X[:, 1])
    assert "| samples | 60 |" in render(gather(regressor), "md")
    labels = np.repeat(["case", "control"], 30)
    machine = GroupDiscoveryMachine(2).fit(X, labels)
    assert "| samples | 30 of class case, 30 of class control |" in render(gather(machine), "md")


def test_accuracy_and_importance_need_data(machine) -> None:
    assert gather(machine)["accuracy"] == []
    X, y = grouped(1)
    report = gather(machine, store=grouped(), test=(X, y))
    kinds = {entry["kind"]: entry for entry in report["accuracy"]}
    assert kinds["test"]["accuracy"] == machine.score(X, y)
    assert f"{machine.score(X, y):.2%} of the test samples" in report["sentence"]
    assert report["importance"]["accuracy_supports"] == pytest.approx(machine.score(X, y))


def test_images_hold_class_means(machine) -> None:
    X, y = grouped()
    images = gather(machine, store=(X, y), image_shape=(5, 8))["images"]
    low, high = images["range"]
    means = np.array(images["means"]) / 255 * (high - low) + low
    np.testing.assert_allclose(means, np.stack([X[y == label].mean(axis=0) for label in ("no", "yes")]), atol=0.01)
    members = {f for group in machine.groups_.values() for f in group.tolist()}
    assert {f for f, _ in images["affiliated"]} == members - set(machine.support_features_.tolist())


def test_wrong_image_shapes_are_refused(machine) -> None:
    for shape in ((3, 3), (50, 50), (10**4, 10**4)):
        with pytest.raises(BadInput, match="image"):
            gather(machine, image_shape=shape)


def test_comparison_accounts_for_every_support(machine) -> None:
    other = fitted(n_features_to_select=4, tau=0.5, C=1.0)
    found = gather(machine, compare=other)["comparison"]
    ours, theirs = set(machine.support_features_.tolist()), set(other.support_features_.tolist())
    assert found["n_kept"] == len(ours & theirs)
    assert {int(name) for name, *_ in found["gained"]} == ours - theirs
    assert {int(name) for name, *_ in found["lost"]} == theirs - ours
    same = gather(machine, compare=machine)["comparison"]
    assert (same["n_gained"], same["n_lost"], same["n_moved"], same["jaccard"]) == (0, 0, 0, 1.0)


def test_stability_of_another_model_is_refused(machine) -> None:
    found = stability_selection(fitted(n_features_to_select=3), *grouped(), n_repeats=2)
    with pytest.raises(BadInput, match="another model"):
        gather(machine, stability=found)


def test_runs_on_other_features_are_not_compared(machine) -> None:
    X, y = grouped()
    other = GroupDiscoveryMachine(2, scheduler="synchronous").fit(X[:, :30], y)
    with pytest.raises(BadInput, match="same features"):
        gather(machine, compare=other)


def test_data_of_another_shape_or_class_is_refused(machine) -> None:
    X, y = grouped()
    with pytest.raises(BadInput, match="39 features"):
        gather(machine, test=(X[:, :39], y))
    with pytest.raises(BadInput, match="but the model was fitted on"):
        gather(machine, test=(X, np.where(y == "yes", "maybe", "no")))


def test_command_line(tmp_path: Path, monkeypatch) -> None:
    from gdm_dask.cli import model_commands
    from gdm_dask.cli.app import app

    assert model_commands
    monkeypatch.chdir(tmp_path)
    X, y = grouped()
    store = ingest(X, "train.zarr", y)
    ingest(grouped(1)[0], "test.zarr", grouped(1)[1], like=store)
    first = GroupDiscoveryMachine(6, scheduler="synchronous").fit(store)
    first.save("first")
    GroupDiscoveryMachine(4, scheduler="synchronous").fit(store).save("second")
    run = CliRunner()
    done = run.invoke(app, ["stability", "first", "train.zarr", "--repeats", "2", "--scheduler", "synchronous"])
    assert done.exit_code == 0, done.output
    arguments = ["--store", "train.zarr", "--test", "test.zarr", "--image-shape", "5x8", "--compare", "second"]
    done = run.invoke(app, ["report", "first", "-o", "report.json", *arguments])
    assert done.exit_code == 0, done.output
    report = json.loads(Path("report.json").read_text())
    for part in ("importance", "stability", "comparison", "images", "map", "groups"):
        assert report[part] is not None
    expected = stability_selection(first, store, n_repeats=2)
    assert report["stability"] == expected.to_dict()
    GroupDiscoveryMachine(3, scheduler="synchronous").fit(store).save("first")
    assert run.invoke(app, ["report", "first", "-o", "report.json"]).exit_code == 0
    assert json.loads(Path("report.json").read_text())["stability"] is None  # it belonged to the previous fit


def test_a_chain_may_end_below_the_limit() -> None:
    for linkage, low in (("component", 0.0), ("clique", 0.75)):
        groups = gather(fitted(linkage=linkage))["groups"]
        assert groups["limit"] == 0.75
        assert groups["edges"][0] == low
        assert [sum(p) + sum(n) for p, n in zip(groups["positive"], groups["negative"], strict=True)] == groups["size"]


def test_accuracy_is_compared_with_the_largest_class_and_has_an_interval_on_test_data() -> None:
    machine, (X, y), (T, t) = fitted(), grouped(), grouped(1)
    kept = np.r_[np.flatnonzero(t == "yes")[:30], np.flatnonzero(t == "no")[:10]]
    training, test = gather(machine, store=(X, y), test=(T[kept], t[kept]))["accuracy"]
    assert (training["interval"], test["largest_class"]) == (None, 0.75)
    p, n, z = test["accuracy"], 40, 1.959964
    half = z * np.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2) / (1 + z**2 / n)  # Wilson's formula
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    assert test["interval"] == pytest.approx([middle - half, middle + half], abs=1e-6)
    text = render(gather(machine, test=(T[kept], t[kept])), "md")
    assert f"95% interval {test['interval'][0]:.4f} to {test['interval'][1]:.4f}; 0.7500 by always naming" in text


def test_the_sentence_says_each_if_every_support_has_a_group() -> None:
    X, y = grouped()
    lone = GroupDiscoveryMachine(1).fit(np.c_[X[:, :1], X[:, :1]], y)
    both = GroupDiscoveryMachine(2).fit(np.c_[X[:, [0, 0]], X[:, [-1, -1]]], y)
    assert "; it speaks for a group of affiliated features, 1 in all." in gather(lone)["sentence"]
    assert "; each of them speaks for a group of affiliated features, 2 in all." in gather(both)["sentence"]
