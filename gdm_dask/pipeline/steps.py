"""Steps of a pipeline after `acquire` and `ingest`: fit, evaluate, report.

The methods of a step import their tools themselves: a tool is loaded only when the step runs, and a change of its code
changes the key of this step only.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gdm_dask.errors import BadInput
from gdm_dask.pipeline.acquire import Acquire
from gdm_dask.pipeline.ingest_step import Ingest
from gdm_dask.pipeline.schema import FROM_ONE, SCHEDULER, SIZE, SWITCH, TEXT, Key, Pipeline, Table
from gdm_dask.pipeline.step import HOW, Context, Step
from gdm_dask.settings.constraint_files import read_constraints
from gdm_dask.store import open_store
from gdm_dask.store.folder import write_whole

if TYPE_CHECKING:
    from gdm_dask.model import FittedModel
    from gdm_dask.pipeline.history import Record

logger = logging.getLogger(__name__)


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
            "memory_limit": SIZE,
            "scheduler": SCHEDULER,
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
        parameters = {key: value for key, value in settings.items() if key not in HOW}
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
        store = open_store(context.pipeline.store("train"))
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
        store = open_store(context.pipeline.store(context.test_part))
        facts = {"on": context.test_part, **evaluate(model, store, distributed, scheduler)}
        write_whole(context.run() / "evaluation.json", json.dumps(facts, indent=1).encode())
        return {"facts": facts}

    def is_there(self, context: Context, outputs: dict[str, Any]) -> bool:
        """Whether the file exists."""
        return (context.run() / "evaluation.json").exists()

    def conclude(self, context: Context, outputs: dict[str, Any], record: Record) -> None:
        """Refuse a model that is worse than the pipeline allows; it is kept but does not become the latest."""
        record.run, record.facts = context.of("fit")["run"], outputs["facts"]
        for name, other in (("accuracy", "r2"), ("r2", "accuracy")):
            wanted, found = context.pipeline.table("evaluate").get(f"min_{name}"), record.facts.get(name)
            if wanted is not None and name not in record.facts:
                raise BadInput(f"evaluate.min_{name} does not fit the target: set evaluate.min_{other} instead")
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
        parts = [part for part in ("train", "test") if f"ingest {part}" in context.outputs]
        stores = {part: context.pipeline.store(part) for part in parts}
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
