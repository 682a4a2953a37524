"""The architecture page stays true: its files exist, its layers and signatures match the code."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gdm_dask"
PAGE = (ROOT / "docs/architecture.md").read_text()
INTERFACES = re.findall(r"^```python interface\n# (\S+)\n(.*?)^```$", PAGE, re.M | re.S)


def test_named_files_and_folders_exist() -> None:
    named = set(re.findall(r"`([\w./-]+(?:\.(?:py|js|css|html|md|toml)|/))`", PAGE))
    assert len(named) > 50
    missing = [name for name in sorted(named) if not (PACKAGE / name).exists() and not (ROOT / name).exists()]
    assert not missing


def test_every_folder_of_the_package_is_named() -> None:
    folders = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*/") if "__pycache__" not in path.parts]
    missing = [str(folder) for folder in folders if folder.parts and f"`{folder}/`" not in PAGE]
    assert not missing


def test_folders_stand_in_the_order_of_the_layers() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    table = PAGE.partition("## Folders and layers")[2].partition("\n\n- ")[0]
    rows = re.findall(r"^\| `?(\w+)/?`? \|", table, re.M)[1:]
    assert rows == ["root" if ":" in layer else layer for layer in contract["layers"]]


def members(tree: ast.Module, name: str) -> dict[str, list[str]]:
    """List the fields and methods of a class, with the names of their arguments."""
    (found,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    result = {}
    for node in found.body:
        if isinstance(node, ast.FunctionDef):
            given = node.args
            extra = [argument for argument in (given.vararg, given.kwarg) if argument]
            result[node.name] = [argument.arg for argument in (*given.args, *extra, *given.kwonlyargs)]
        elif isinstance(node, ast.AnnAssign):
            result[ast.unparse(node.target)] = []
    return result


@pytest.mark.parametrize(("file", "block"), INTERFACES, ids=[file for file, _ in INTERFACES])
def test_signatures_are_those_of_the_code(file, block) -> None:
    code = ast.parse((PACKAGE / file).read_text())
    shown = ast.parse(block)
    for node in shown.body:
        assert isinstance(node, ast.ClassDef)
        real = members(code, node.name)
        for name, arguments in members(shown, node.name).items():
            assert real.get(name) == arguments, f"{file}: {node.name}.{name}"


def test_every_interface_names_its_file() -> None:
    assert len(INTERFACES) == PAGE.count("```python interface") > 0
