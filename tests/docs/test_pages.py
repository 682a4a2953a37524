"""README and the pages below docs/ stay true: blocks run as written, commands parse, links resolve.

Fenced blocks marked ``sh`` or ``python`` run in the order of the page. A second word after the mark gives the
reason why a block is only shown (see `REASONS`); its commands are still parsed.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import shutil
import tomllib
from itertools import dropwhile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer
from helpers.biology import write_biology
from helpers.instances import informative
from helpers.store_helpers import gdm, write_svmlight

import gdm_dask
from gdm_dask.cli.app import ORDER, app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [
    *PAGES,
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
#: Files that a page makes, so its folder does not hold them yet.
MADE = {
    "README.md": ("train.svm", "test.svm", "train.zarr", "test.zarr", "runs"),
    "ingest.md": ("train.zarr", "test.zarr"),
    "fit.md": ("runs",),
    "pipelines.md": ("train.zarr", "test.zarr"),
}
#: Reasons to show a block without running it.
REASONS = {"cluster", "install", "interface", "long", "service", ""}
LANGUAGES = {"sh", "python", "text"}
MAX_README_LINES = 150


class Block(NamedTuple):
    page: Path
    language: str
    reason: str
    text: str

    @property
    def runs(self) -> bool:
        return self.language != "text" and not self.reason

    def commands(self) -> list[list[str]]:
        """Split the commands of a shell block into words, without comments and leading variables."""
        lines = [shlex.split(line, comments=True) for line in self.text.replace("\\\n", " ").splitlines()]
        return [list(dropwhile(re.compile("[A-Z_]+=").match, words)) for words in lines if words]


def blocks_of(page: Path) -> list[Block]:
    found = re.findall(r"^```(\w*)(?: +(\w+))?\n(.*?)^```$", page.read_text(), re.M | re.S)
    return [Block(page, *parts) for parts in found]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    """Features that are the pixels of 28 x 28 images."""
    rows, y = informative(784, 300, 0)
    return np.where(np.abs(rows.T) > 0.5, rows.T, 0.0), y


@pytest.fixture(scope="module")
def prepared(data, tmp_path_factory) -> Path:
    """A folder with everything that the pages start from."""
    folder = tmp_path_factory.mktemp("prepared")
    X, y = data
    train = gdm_dask.ingest(write_svmlight(folder / "train.svm", X, y), folder / "train.zarr")
    gdm_dask.ingest(write_svmlight(folder / "test.svm", X[:100], y[:100]), folder / "test.zarr", like=train)
    names = ",".join(["patient", *(f"gene{number}" for number in range(20)), "diagnosis"])
    rows = (",".join(["P", *map(str, row), str(label)]) for row, label in zip(X[:, :20], y, strict=True))
    (folder / "genes.csv").write_text("\n".join([names, *rows]) + "\n")
    for name, tau in (("first", 0.25), ("second", 0.5)):
        gdm_dask.GroupDiscoveryMachine(10, tau=tau).fit(train).save(folder / "runs" / name)
    for name, words in (("ham", "the meeting is at noon"), ("spam", "win a free prize now")):
        (folder / "mails" / name).mkdir(parents=True)
        for number in range(8):
            (folder / "mails" / name / f"{number}.txt").write_text(f"Subject: {number}\n\n{words} {words[number:]}\n")
    new = [{"text": "free prize at noon", "label": "spam"}, {"text": "the meeting", "label": "ham"}]
    (folder / "new.jsonl").write_text("".join(json.dumps(line) + "\n" for line in new))
    write_biology(folder)
    (folder / "pipelines").mkdir()
    pipeline = (ROOT / "pipelines/synthetic.toml").read_text()
    (folder / "pipelines/synthetic.toml").write_text(pipeline.replace("scale = 1.0", "scale = 0.1"))
    return folder


@pytest.fixture
def place(prepared, tmp_path, monkeypatch):
    """Change to a copy of the prepared folder, for one page."""

    def go(page: Path) -> Path:
        made = MADE.get(page.name, ())
        shutil.copytree(prepared, tmp_path / "page", ignore=lambda _, names: [name for name in names if name in made])
        monkeypatch.chdir(tmp_path / "page")
        return tmp_path / "page"

    return go


def run_page(page: Path, data: tuple[np.ndarray, np.ndarray], capsys: pytest.CaptureFixture[str]) -> dict:
    """Run the blocks of a page in order; returns the names that its Python blocks define."""
    X, y = data
    names = {"X": X, "y": y, "X_test": X[:100], "y_test": y[:100]}
    for block in filter(lambda block: block.runs, blocks_of(page)):
        if block.language == "python":
            exec(compile(block.text, str(page), "exec"), names)
            continue
        for words in block.commands():
            assert words[0] == "gdm", f"{page.name}: {words}: give the block a reason not to run"
            code, out, err = gdm(capsys, *words[1:])
            assert code == 0, (words, out, err)
    return names


@pytest.mark.parametrize("page", [page for page in PAGES[1:] if any(block.runs for block in blocks_of(page))],
                         ids=lambda page: page.name)  # fmt: skip
def test_blocks_of_a_page_run(page, data, place, capsys, monkeypatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    place(page)
    names = run_page(page, data, capsys)
    if "certified" in names:
        share = math.floor(100 * names["certified"].certified_share_) / 100
        assert f"certified_share_  # {share} of" in page.read_text()


def test_readme_does_what_it_says(data, place, capsys) -> None:
    folder = place(PAGES[0])
    names = run_page(PAGES[0], data, capsys)
    machine, found = names["machine"], names["found"]
    assert str(found.supports_.round(2)) in PAGES[0].read_text()
    assert len(np.unique(found.affiliations_["feature"])) - len(found.supports_) == 13
    assert len(machine.support_features_) == 20
    assert f"accuracy {machine.score(names['X_test'], names['y_test']):.2f}\n" in PAGES[0].read_text()
    loaded = gdm_dask.GroupDiscoveryMachine.load(folder / "runs/digits")
    np.testing.assert_array_equal(loaded.weights_, machine.weights_)
    n_features, n_samples = gdm_dask.open_store(folder / "train.zarr").shape
    assert f"{n_samples:,} samples of {round(n_features, -3):,} features" in PAGES[0].read_text()
    assert len((folder / "labels.txt").read_text().split()) == gdm_dask.open_store(folder / "test.zarr").shape[1]
    assert "20 are supports" in (folder / "report.html").read_text()
    assert (folder / "runs/synthetic/latest/report.html").exists()


def test_readme_is_a_front_page() -> None:
    assert len(PAGES[0].read_text().splitlines()) <= MAX_README_LINES


def test_every_block_says_what_it_is() -> None:
    for block in BLOCKS:
        assert block.language in LANGUAGES, f"{block.page.name}: a block needs a language: {block.text[:60]!r}"
        assert block.reason in REASONS, f"{block.page.name}: {block.reason!r} is no reason: {sorted(REASONS)}"
    for page in PAGES:
        assert 2 * len(blocks_of(page)) == len(re.findall(r"^```", page.read_text(), re.M)), page.name


def test_shown_commands_are_right(capsys, monkeypatch) -> None:
    gdm(capsys, "--version")  # registers the commands
    program = typer.main.get_command(app)
    targets = re.findall(r"^([\w%-]+):", (ROOT / "Makefile").read_text(), re.M)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    shown = [words for block in BLOCKS if block.language == "sh" and block.reason for words in block.commands()]
    assert {words[0] for words in shown} <= {"gdm", "make", "pip", "python", "export", "gcloud"}
    for words in shown:
        if words[0] == "gdm":
            program.commands[words[1]].make_context(words[1], words[2:])
        elif words[0] == "export":
            for variable in words[1:]:
                monkeypatch.setenv(*variable.split("=", 1))
        elif words[0] == "make":
            assert words[1] in targets, words
        elif words[0] == "pip":
            assert set(re.findall(r"\[(\w+)\]", words[2])) <= set(extras), words
        elif words[0] == "python":
            assert (ROOT / words[2].replace(".", "/") / "__main__.py").exists(), words


def test_inline_make_targets_are_there() -> None:
    targets = re.findall(r"^([\w-]+|bench-%):", (ROOT / "Makefile").read_text(), re.M)
    benchmarks = {f"bench-{file.stem}" for file in (ROOT / "pipelines/bench").glob("*.py")}
    named = {target for page in LINKED for target in re.findall(r"`make ([\w-]+)", page.read_text())}
    assert named <= {*targets, *benchmarks}


def test_command_page_lists_every_command_and_variable() -> None:
    text = (ROOT / "docs/cli.md").read_text()
    assert re.findall(r"^\| `gdm (\w+)` \|", text, re.M) == list(ORDER)
    code = "".join(file.read_text() for file in (ROOT / "gdm_dask").rglob("*.py"))
    assert set(re.findall(r"^\| `(GDM_\w+)` \|", text, re.M)) == set(re.findall(r"\bGDM_[A-Z_]+\b", code))


def test_install_page_lists_every_extra_once() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`.*`) \|", (ROOT / "docs/install.md").read_text(), re.M)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(extras)


def test_index_and_readme_link_to_every_page() -> None:
    for page in PAGES[1:]:
        assert f"(docs/{page.name})" in PAGES[0].read_text() or page.name == "index.md", page.name
        assert f"({page.name})" in (ROOT / "docs/index.md").read_text() or page.name == "index.md", page.name


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes for the headings of a page."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    heads = re.findall(r"^#+ (.+)$", prose, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target}"
