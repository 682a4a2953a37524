"""Files for other tools are valid: citation, workflow, issue forms, hooks."""

from __future__ import annotations

import json
import subprocess
import tomllib
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/workflows/test.yml": "github-workflows",
    ".github/ISSUE_TEMPLATE/bug.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/feature.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
}


def load(name: str) -> dict:
    return yaml.load((ROOT / name).read_text(), yaml.BaseLoader)  # all scalars stay text: "on" is not a boolean


@pytest.mark.parametrize("name", SCHEMAS)
def test_file_fits_its_schema(name) -> None:
    found = find_spec("check_jsonschema")
    assert found is not None
    folder = Path(found.submodule_search_locations[0]) / "builtin_schemas/vendor"
    schema = json.loads((folder / f"{SCHEMAS[name]}.json").read_text())
    document = yaml.safe_load((ROOT / name).read_text())
    if True in document:  # YAML 1.1 reads the key "on" as true
        document["on"] = document.pop(True)
    jsonschema.validators.validator_for(schema)(schema).validate(document)


def test_citation_is_of_this_package() -> None:
    citation = load("CITATION.cff")
    assert (citation["version"], citation["license"]) == (PROJECT["version"], PROJECT["license"])
    assert citation["keywords"] == PROJECT["keywords"]
    assert [author["family-names"] for author in citation["preferred-citation"]["authors"]] == [
        "Zhai", "Tan", "Tsang", "Ong"
    ]  # fmt: skip


def test_changelog_has_this_version() -> None:
    assert f"\n## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_workflow_tests_every_supported_python() -> None:
    job = load(".github/workflows/test.yml")["jobs"]["test"]
    pythons = job["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    classifiers = [text.rpartition(" :: ")[2] for text in PROJECT["classifiers"] if ":: Python :: 3." in text]
    assert classifiers == pythons
    assert job["steps"][-1]["run"] == "make test"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is a source archive")
def test_source_archive_holds_what_the_repository_holds() -> None:
    """Setuptools adds the package, pyproject.toml, MANIFEST.in, README and LICENSE by itself."""
    rules = [line.split() for line in (ROOT / "MANIFEST.in").read_text().splitlines() if not line.startswith("#")]
    taken = {word for verb, *words in rules if verb in ("include", "graft") for word in words}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in {path.split("/")[0] for path in tracked.splitlines()}:
        if name not in ("gdm_dask", "pyproject.toml", "MANIFEST.in", "LICENSE"):
            assert any(fnmatch(name, pattern) for pattern in taken), name


def test_workflow_tests_the_oldest_versions() -> None:
    """The oldest Python, for which the oldest versions of other packages have wheels; and all of them have a bound."""
    job = load(".github/workflows/test.yml")["jobs"]["oldest"]
    (python,) = (step["with"]["python-version"] for step in job["steps"] if "python-version" in step.get("with", {}))
    assert PROJECT["requires-python"] == f">={python}"
    assert job["steps"][-1]["run"] == "make test-oldest"
    assert [text for text in PROJECT["dependencies"] if ">=" not in text] == ["llvmlite"]


def test_hooks_are_the_linters_of_the_makefile() -> None:
    """The commit hooks check the same as `make lint`."""
    (local,) = load(".pre-commit-config.yaml")["repos"]
    hooks = {hook["entry"].split()[0] for hook in local["hooks"]}
    recipe = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    linters = {line.split("/")[1].split()[0] for line in recipe.splitlines() if line.startswith("\t")}
    assert local["repo"] == "local"
    assert hooks == linters
