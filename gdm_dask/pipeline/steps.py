"""Steps of a pipeline after `acquire`: ingest, fit, evaluate, report.

The methods of a step import their tools themselves: a tool is loaded only when the step runs, and a change of its code
changes the key of this step only.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.pipeline.acquire import Acquire, content_hash
from gdm_dask.pipeline.schema import FROM_ONE, SWITCH, TEXT, Key, Pipeline, Problem, Table, as_list
from gdm_dask.pipeline.step import Context, NotKnown, Step
from gdm_dask.settings.constraint_files import read_constraints
from gdm_dask.store import FeatureStore, open_store
from gdm_dask.store.folder import write_whole

if TYPE_CHECKING:
    from gdm_dask.model import FittedModel
    from gdm_dask.pipeline.history import Record
    from gdm_dask.pipeline.readers import Part

logger = logging.getLogger(__name__)

#: Options that affect how the work is done, not its result.
_HOW = ("memory_limit", "scheduler", "workers", "scratch")


_SET = Table(
    {
        "reader": Key(str, required=True, choices=("svmlight", "matrix", "arrays", "documents", "twin")),
        "files": Key(str, several=True),
        "sample_weight": TEXT,  # column of the labels (matrix), array (arrays) or key (documents)
        # svmlight
        "index_base": Key(int, between=(0, 1)),
        "on_error": Key(str, choices=("raise", "skip")),
        # matrix
        "labels": TEXT,  # acquired file with the labels, second in `files`
        "target": TEXT,  # column of a table
        # arrays
        "x": TEXT,
        "y": TEXT,
        "classes": Key(int, several=True),
        "image": Key(int, pair=True, between=FROM_ONE),
        "shift": Key(int, between=(0, 64)),
        "divide": Key(float, between=(1e-300, float("inf"))),
        "add": Key(float),
        # documents
        "text": TEXT,
        "label": TEXT,
        "strip_headers": SWITCH,
        "analyzer": Key(str, choices=("byte", "char", "word")),
        "ngrams": Key(int, several=True, between=(1, 8)),
        "min_df": Key(int, between=FROM_ONE),
        "unit_rows": SWITCH,
        "hashed": Key(int, between=(2, 2**31)),
        "hashed_names": SWITCH,
        # twin
        "like": Key(str, choices=("webspam", "kdd2010", "url", "news20", "paper")),
        "scale": Key(float, between=(1e-9, 1e3)),
        "seed": Key(int, between=(0, 2**63 - 1)),
        "part": Key(str, choices=("train", "test")),
    }
)


class Ingest(Step):
    """Make a store from one part of the data.

    Parameters
    ----------
    part : {"train", "test"}
    """

    stage = "ingest"
    table = Table(
        {
            "train": _SET,
            "test": _SET,
            "split": Table(
                {"test_fraction": Key(float, between=(0.001, 0.999)), "seed": Key(int, between=(0, 2**32 - 1))}
            ),
            "n_features": Key(int, between=FROM_ONE),
            "dtype": Key(str, choices=("auto", "float32", "float64")),
            "codec": Key(str, choices=("lz4", "zstd", "none")),
            "block_size": TEXT,
            "memory_limit": TEXT,
            "scheduler": TEXT,
            "workers": Key(int, between=FROM_ONE),
            "scratch": TEXT,
        }
    )

    def __init__(self, part: str) -> None:
        self.part = part
        self.name = f"ingest {part}"

    @classmethod
    def of(cls, pipeline: Pipeline) -> list[Step]:
        """Return a step for the training set, and one for the test set if there is one."""
        sets = pipeline.table("ingest")
        return [cls("train"), *([cls("test")] if "test" in sets or "split" in sets else [])]

    @classmethod
    def problem(cls, settings: Mapping[str, Any]) -> Problem | None:
        """Return a problem for sets that are missing, given twice, or without files."""
        sets = settings.get("ingest", {})
        if "train" not in sets:
            return "ingest.train", "is missing: it names the data to fit"
        if "test" in sets and "split" in sets:
            return "ingest.split", "conflicts with ingest.test; set only one"
        checks = (cls._problem_of_set(part, sets[part], settings) for part in ("train", "test") if part in sets)
        return next(filter(None, checks), None)

    @staticmethod
    def _problem_of_set(part: str, table: Mapping[str, Any], settings: Mapping[str, Any]) -> Problem | None:
        reader, files = table["reader"], settings.get("acquire", {})
        for key in ("files", "labels"):
            for name in as_list(table.get(key, [])):
                if name not in files:
                    known = ", ".join(files) or "none"
                    return f"ingest.{part}.{key}", f"names [acquire.{name}], which is missing; there are {known}"
        needed = "like" if reader == "twin" else "files"
        return None if needed in table else (f"ingest.{part}.{needed}", f"is missing: the {reader} reader needs it")

    @staticmethod
    def _files_of(settings: Mapping[str, Any]) -> list[str]:
        """Return the acquired files of a set, with the file of its labels last."""
        labels = as_list(settings.get("labels", [])) if settings["reader"] == "matrix" else []
        return [*as_list(settings.get("files", [])), *labels]

    def _given(self, context: Context) -> Part:
        from gdm_dask.pipeline.readers import Part

        sets = context.pipeline.table("ingest")
        settings = sets.get(self.part) or sets["train"]
        names = self._files_of(settings)
        if not context.files.keys() >= set(names):
            raise NotKnown
        files = [context.files[name].path for name in names]
        return Part(settings, files, self.part, sets.get("split"), context.store_path("train"))

    def _options(self, context: Context) -> dict[str, Any]:
        return {
            key: value
            for key, value in context.pipeline.table("ingest").items()
            if key not in ("train", "test", "split")
        }

    def inputs(self, context: Context) -> dict[str, Any]:
        """Return the settings, the files, and for a test set the training store."""
        given = self._given(context)
        return {
            "part": self.part,
            "settings": dict(given.settings),
            "split": given.split,
            "options": {key: value for key, value in self._options(context).items() if key not in _HOW},
            "files": [context.files[name].sha256 for name in self._files_of(given.settings)],
            "train": context.of("ingest train")["identity"] if self.part == "test" else None,
        }

    def run(self, context: Context, key: str) -> dict[str, Any]:
        """Ingest the files."""
        from gdm_dask.ingestion import run_ingest
        from gdm_dask.pipeline.readers import read_part

        path = context.store_path(self.part)
        given = read_part(self._given(context))
        names = {"block_size": "block_bytes", "workers": "n_workers"}
        options = {names.get(name, name): value for name, value in self._options(context).items()}
        options |= {**given.options, "overwrite": True}
        if self.part == "test":
            options |= {"like": context.store_path("train"), "n_features": None}
        store = run_ingest(given.source, path, given.labels, **options).store
        self._check_unchanged(context)
        return {"path": str(path.relative_to(context.folder)), "identity": identity(store), "shape": list(store.shape)}

    @staticmethod
    def _check_unchanged(context: Context) -> None:
        """Refuse a store made from files that changed while they were read."""
        for name, file in context.files.items():
            if not file.path.exists() or content_hash(file.path, context.manifest.files) != file.sha256:
                raise BadInput(f"acquire.{name}: {file.path} changed while it was read: run the pipeline again")

    def is_there(self, context: Context, outputs: dict[str, Any]) -> bool:
        """Whether the store is unchanged."""
        try:
            return bool(identity(open_store(context.folder / outputs["path"])) == outputs["identity"])
        except DamagedStore:
            return False


def identity(store: FeatureStore) -> str:
    """Return the store's fingerprint, after verifying that its targets are intact."""
    if store.target is not None:
        _ = store.packed_targets
    return store.fingerprint


class Fit(Step):
    """Fit in a folder named by the key, so that an interrupted fit is found again."""

    name, stage = "fit", "fit"
    _TUNED: ClassVar[dict[str, Key]] = {
        "tau": Key(float, between=(0, 0.999999)),
        "C": Key(float, choices=("auto",), between=(1e-12, 1e12)),
        "cut_size": Key(int, choices=("auto",), between=FROM_ONE),
    }
    table = Table(
        {
            "n_features_to_select": Key(int, between=FROM_ONE),
            **_TUNED,
            "max_cuts": Key(int, between=FROM_ONE),
            "tol": Key(float, between=(0, 1)),
            "matching": Key(str, choices=("greedy", "exact")),
            "master": Key(str, choices=("merged", "cuts")),
            "measure": Key(str, choices=("pearson", "spearman", "cosine", "su", "ig")),
            "linkage": Key(str, choices=("star", "clique", "component")),
            "fit_intercept": SWITCH,
            "class_weight": Key(str, choices=("balanced",)),
            "task": Key(str, choices=("classification", "regression")),
            "epsilon": Key(float, between=(0, 1e12)),
            "groups": SWITCH,
            "certify": SWITCH,
            "include": Key(str, several=True),  # a list of names, or names separated by commas, or a file
            "exclude": Key(str, several=True),
            "groups_of": TEXT,  # a file
            "memory_limit": TEXT,
            "scheduler": TEXT,
            "tune": Table(
                {
                    **{name: replace(key, several=True) for name, key in _TUNED.items()},
                    "folds": Key(int, between=(2, 50)),
                    "samples": Key(int, between=(20, float("inf"))),
                }
            ),
        }
    )

    def inputs(self, context: Context) -> dict[str, Any]:
        """Return the parameters and the training store."""
        settings = read_constraints(context.pipeline.table("fit"))
        parameters = {key: value for key, value in settings.items() if key not in _HOW}
        return {"parameters": parameters, "train": context.of("ingest train")["identity"]}

    def run(self, context: Context, key: str) -> dict[str, Any]:
        """Fit, after tuning the parameters if requested."""
        from gdm_dask.analysis.cross_validation import tune
        from gdm_dask.cutting_plane.checkpoint import UnusableCheckpoint
        from gdm_dask.estimator import estimator_for
        from gdm_dask.inputs import target_of_task
        from gdm_dask.pipeline.run_directory import RunDirectory

        run = f"runs/{key[:12]}"
        if self.stage in context.forced:
            shutil.rmtree(context.folder / run, ignore_errors=True)
        store = open_store(context.store_path("train"))
        parameters = {"scheduler": os.environ.get("GDM_SCHEDULER"), **read_constraints(context.pipeline.table("fit"))}
        grid, target = parameters.pop("tune", None), target_of_task(store, None, parameters.pop("task", None))
        if grid is not None:
            parameters |= tune(store, estimator_for(target, parameters), grid, context.folder / run / "tuning.json")
        directory = RunDirectory(context.folder / run)

        def fit(resume: bool) -> None:
            estimator = estimator_for(target, parameters)
            directory.fit(estimator, store, resume, not resume, lambda iteration: logger.info("%s", iteration))

        try:
            fit(resume=True)
        except UnusableCheckpoint as error:  # nobody is there to pass --overwrite
            logger.warning("%s The fit starts over.", str(error).partition(" Start over")[0])
            fit(resume=False)
        earlier = context.manifest.steps.get("fit", {}).get("outputs", {})
        previous = earlier.get("run") if earlier.get("run") != run else earlier.get("previous")
        return {"run": run, "model": model_hash(directory.path), "previous": previous}

    def is_there(self, context: Context, outputs: dict[str, Any]) -> bool:
        """Whether the model is unchanged."""
        return bool(model_hash(context.folder / outputs["run"]) == outputs["model"])


def model_hash(run: Path) -> str | None:
    """Return the checksum of a fitted model; None if there is none."""
    try:
        return str(json.loads((run / "model.json").read_bytes())["arrays_sha256"])
    except (OSError, ValueError, KeyError):
        return None


class Evaluate(Step):
    """Evaluate the model on the test set, or on the training set if there is no test set."""

    name, stage = "evaluate", "evaluate"
    table = Table(
        {"distributed": SWITCH, "min_accuracy": Key(float, between=(0, 1)), "min_r2": Key(float, between=(-1e12, 1))}
    )

    def inputs(self, context: Context) -> dict[str, Any]:
        """Return the model and the data."""
        settings = {key: value for key, value in context.pipeline.table("evaluate").items() if key[:4] != "min_"}
        data = context.of(f"ingest {context.test_part}")["identity"]
        return {"model": context.of("fit")["model"], "data": data, "settings": settings}

    def run(self, context: Context, key: str) -> dict[str, Any]:
        """Write ``evaluation.json`` into the run directory."""
        from gdm_dask.analysis.metrics import evaluate
        from gdm_dask.estimator import load_model

        model = load_model(context.run())
        scheduler = context.pipeline.table("fit").get("scheduler", os.environ.get("GDM_SCHEDULER"))
        distributed = context.pipeline.table("evaluate").get("distributed", False)
        store = open_store(context.store_path(context.test_part))
        facts = {"on": context.test_part, **evaluate(model, store, distributed, scheduler)}
        write_whole(context.run() / "evaluation.json", json.dumps(facts, indent=1).encode())
        return {"facts": facts}

    def is_there(self, context: Context, outputs: dict[str, Any]) -> bool:
        """Whether the file exists."""
        return (context.run() / "evaluation.json").exists()

    def conclude(self, context: Context, outputs: dict[str, Any], record: Record) -> None:
        """Refuse a model that is worse than the pipeline allows; it is kept but does not become the latest."""
        record.run, record.facts = context.of("fit")["run"], outputs["facts"]
        for name in ("accuracy", "r2"):
            wanted, found = context.pipeline.table("evaluate").get(f"min_{name}"), outputs["facts"].get(name)
            if wanted is not None and (found is None or found < wanted):
                shown = "not defined" if found is None else f"{found:.4f}"
                raise BadInput(
                    f"the {name} is {shown}, below evaluate.min_{name} = {wanted}: check {context.run()} and the "
                    "changes in the data"
                )


class Report(Step):
    """Write the report on the model."""

    name, stage = "report", "report"
    table = Table({"form": Key(str, choices=("html", "md", "json")), "image": Key(int, pair=True, between=FROM_ONE)})

    def inputs(self, context: Context) -> dict[str, Any]:
        """Return the model, the previous model, and the data."""
        return {
            "name": [context.pipeline.name, context.pipeline.settings.get("description")],
            "settings": context.pipeline.table("report"),
            "model": context.of("fit")["model"],
            "previous": context.of("fit")["previous"],
            "train": context.of("ingest train")["identity"],
            "test": context.of(f"ingest {context.test_part}")["identity"],
        }

    def run(self, context: Context, key: str) -> dict[str, Any]:
        """Write the report into the run directory."""
        from gdm_dask.estimator import load_model
        from gdm_dask.report import make_report

        model = load_model(context.run())
        settings = context.pipeline.table("report")
        file = context.run() / f"report.{settings.get('form', 'html')}"
        stores = {part: context.store_path(part) for part in ("train", "test") if f"ingest {part}" in context.outputs}
        make_report(
            model,
            file,
            title=context.pipeline.settings.get("description", context.pipeline.name),
            store=stores["train"],
            test=stores.get("test"),
            image_shape=tuple(settings["image"]) if "image" in settings else None,
            **self._comparison(context, model),
        )
        return {"file": str(file.relative_to(context.folder))}

    @staticmethod
    def _comparison(context: Context, model: FittedModel) -> dict[str, Any]:
        """Return the previous run, if it still exists and has the same features."""
        from gdm_dask.estimator import load_model

        previous = context.of("fit")["previous"]
        if previous is None or model_hash(context.folder / previous) is None:
            return {}
        other = load_model(context.folder / previous)
        return {"compare": other, "compare_name": previous} if other.n_features_in_ == model.n_features_in_ else {}

    def is_there(self, context: Context, outputs: dict[str, Any]) -> bool:
        """Whether the file exists."""
        return (context.folder / str(outputs["file"])).exists()


#: Kinds of steps, in the order in which they run.
STEPS: tuple[type[Step], ...] = (Acquire, Ingest, Fit, Evaluate, Report)


def steps_of(pipeline: Pipeline) -> list[Step]:
    """Return the steps of a pipeline, in order."""
    return [step for kind in STEPS for step in kind.of(pipeline)]
