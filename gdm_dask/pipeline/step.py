"""Steps of a pipeline, and the record of their results.

A step is up to date while its key equals the recorded one. The key covers its settings, the results that it depends
on, and its code: its own class and all modules imported from there, directly or indirectly.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import logging
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gdm_dask.pipeline.schema import Pipeline, Problem, Table
from gdm_dask.store.folder import write_whole
from gdm_dask.system.version import VERSION

if TYPE_CHECKING:
    from gdm_dask.pipeline.acquire import Acquired
    from gdm_dask.pipeline.history import Record

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
_PACKAGE = Path(__file__).parents[1]
_FORMATS = "gdm_dask.ingestion.sources"
#: Packages that display models; only steps that import them directly depend on them.
_SHOWN = frozenset({"gdm_dask.report", "gdm_dask.notebook"})

#: Options that affect how the work is done, not its result.
HOW = ("memory_limit", "scheduler", "workers", "scratch")


class NotKnown(Exception):
    """A dry run cannot decide whether a step is up to date; the message says what the step would do."""

    def __init__(self, plan: str = "would run if an earlier step does") -> None:
        super().__init__(plan)


class Step(Protocol):
    """A unit of work. To add one, inherit from this class and add the class to `steps.STEPS`."""

    name: str  # in the manifest and the history
    stage: ClassVar[str]  # name of its table in the pipeline file, and of its stage for ``--from``
    table: ClassVar[Table] = Table()  # keys of that table

    @classmethod
    def of(cls, pipeline: Pipeline) -> list[Step]:
        """Return the steps of this kind that a pipeline has."""
        del pipeline
        return [cls()]

    @classmethod
    def problem(cls, settings: Mapping[str, Any]) -> Problem | None:
        """Return the first mistake among keys that refer to each other; None if the settings are valid."""
        del settings
        return None

    def inputs(self, context: Context) -> dict[str, Any]:
        """Return everything that the result depends on except the code, as JSON values."""

    def run(self, context: Context, key: str) -> dict[str, Any]:
        """Do the work and return the outputs, as JSON values."""

    def is_there(self, context: Context, outputs: dict[str, Any]) -> bool:
        """Whether the recorded outputs still exist."""

    def conclude(self, context: Context, outputs: dict[str, Any], record: Record) -> None:
        """Add the outputs, old or new, to the record of the run; raise if the pipeline does not allow them."""


@dataclass
class Context:
    """State of a pipeline run: its folder, and the outputs of its steps so far."""

    pipeline: Pipeline
    manifest: Manifest
    forced: frozenset[str] = frozenset()  # stages that run even if up to date
    dry_run: bool = False  # neither fetch nor write
    files: dict[str, Acquired] = field(default_factory=dict)  # of each name in ``[acquire]``
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # of each step

    @property
    def folder(self) -> Path:
        """Folder of the pipeline."""
        return self.pipeline.folder

    def of(self, step: str) -> dict[str, Any]:
        """Return the outputs of an earlier step."""
        if step not in self.outputs:
            raise NotKnown
        return self.outputs[step]

    def run(self) -> Path:
        """Return the run directory of the fit."""
        return self.folder / str(self.of("fit")["run"])

    @property
    def test_part(self) -> str:
        """Name of the set to evaluate on."""
        part = next((part for part in ("test", "train") if f"ingest {part}" in self.outputs), "train")
        self.of(f"ingest {part}")
        return part


class Manifest:
    """File ``manifest.json`` in a pipeline's folder, written atomically after every step.

    Attributes
    ----------
    files : dict
        Checksums of acquired files, with their sizes and times.
    steps : dict
        Map from each step to {"key", "outputs"}.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, Any] = {}
        self.steps: dict[str, dict[str, Any]] = {}
        try:
            document = json.loads(path.read_bytes())
            if document["format_version"] == FORMAT_VERSION:
                self.files, self.steps = document["files"], document["steps"]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError):
            logger.warning("%s is damaged: all stages run again", path)

    def outputs(self, step: str, key: str) -> dict[str, Any] | None:
        """Return the outputs of a step recorded under exactly this key, or None."""
        entry = self.steps.get(step)
        return entry["outputs"] if entry is not None and entry["key"] == key else None

    def record(self, step: str, key: str, outputs: dict[str, Any]) -> None:
        """Record that a step is done."""
        self.steps[step] = {"key": key, "outputs": outputs}
        self.save()

    def save(self) -> None:
        """Write the file."""
        document = {"format_version": FORMAT_VERSION, "files": self.files, "steps": self.steps}
        write_whole(self.path, json.dumps(document, indent=1).encode())


def step_key(step: Step, context: Context) -> str:
    """Return a checksum of everything that the result of a step depends on."""
    parts = {"stage": step.stage, "code": code_version(type(step)), **step.inputs(context)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@cache
def code_version(kind: type[Step]) -> str:
    """Return the version of the package with a checksum of the code that a step depends on."""
    digest = hashlib.sha256()
    for file in code_behind(kind):
        digest.update(file.read_bytes())
    return f"{VERSION} {digest.hexdigest()[:16]}"


def code_behind(kind: type[Step]) -> list[Path]:
    """Return the files that a step may depend on: the module of its class, and all modules imported from there."""
    own = Path(inspect.getfile(kind))
    module = ast.parse(own.read_bytes())
    module.body = [node for node in module.body if not isinstance(node, ast.ClassDef)]
    asked = {*_imported(ast.parse(textwrap.dedent(inspect.getsource(kind)))), *_imported(module)}
    found = {"": own}
    left = list(asked)
    while left:
        name = left.pop()
        file = _file_of(name)
        if file is not None and name not in found and (name in asked or name not in _SHOWN):
            found[name] = file
            if name == _FORMATS:  # these modules are found by file suffix
                left += [f"{name}.{format_.stem}" for format_ in file.parent.glob("*.py")]
            left += [name.rpartition(".")[0], *_imports_of(file.read_bytes())]  # its package is loaded too
    return sorted(set(found.values()))


def _file_of(name: str) -> Path | None:
    """Return the file of a module of the package; None for any other name."""
    first, *rest = name.split(".")
    if first != _PACKAGE.name or not rest:
        return None
    place = _PACKAGE.joinpath(*rest)
    candidates = (place / "__init__.py", place.with_suffix(".py"))
    return next((file for file in candidates if file.exists()), None)


@cache
def _imports_of(source: bytes) -> list[str]:
    """Return the names that a module imports; steps share most modules."""
    return list(_imported(ast.parse(source)))


def _imported(code: ast.AST) -> Iterator[str]:
    """Yield the names that code imports at run time, anywhere in it; some are modules."""
    left: list[ast.AST] = [code]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            left += node.orelse
        else:
            left += ast.iter_child_nodes(node)
