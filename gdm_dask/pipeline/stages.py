"""The stages of a pipeline: acquire, ingest, fit, evaluate, report, as steps that know what they depend on."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from crc32c import crc32c

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.estimator import GroupDiscoveryMachine
from gdm_dask.ingestion import run_ingest
from gdm_dask.pipeline.acquire import acquire, content_hash, is_ready
from gdm_dask.pipeline.context import Context, NotKnown, Step
from gdm_dask.pipeline.manifest import step_key
from gdm_dask.pipeline.prediction import evaluate_store
from gdm_dask.pipeline.readers import Part, read_part
from gdm_dask.pipeline.schema import Pipeline, as_list
from gdm_dask.run_directory import RunDirectory
from gdm_dask.store import FeatureStore, open_store
from gdm_dask.store.folder import write_whole
from gdm_dask.tuning import tune

logger = logging.getLogger(__name__)

STAGES = ("acquire", "ingest", "fit", "evaluate", "report")
#: Options that say how the work is done, not what comes out.
_HOW = ("memory_limit", "scheduler", "workers", "scratch")


def steps_of(pipeline: Pipeline) -> list[Step]:
    """The steps of a pipeline, in order. Acquiring is not among them: see `acquire_files`."""
    sets = pipeline.table("ingest")
    parts = ["train"] + (["test"] if "test" in sets or "split" in sets else [])
    ingests = [
        Step(f"ingest {part}", "ingest", partial(_ingest_key, part=part), _store_is_there, partial(_ingest, part=part))
        for part in parts
    ]
    return [
        *ingests,
        Step("fit", "fit", _fit_key, _model_is_there, _fit),
        Step("evaluate", "evaluate", _evaluate_key, _evaluation_is_there, _evaluate),
        Step("report", "report", _report_key, _report_is_there, _report),
    ]


def acquire_files(context: Context, dry_run: bool = False) -> bool:
    """Find or fetch all files; returns whether nothing has changed since the last run."""
    for name, settings in context.pipeline.table("acquire").items():
        if dry_run and not is_ready(name, settings, context.downloads):
            raise NotKnown(name)
        context.files[name] = acquire(name, settings, context.downloads, context.manifest.files)
    found = {name: file.sha256 for name, file in context.files.items()}
    entry = context.manifest.steps.get("acquire")
    unchanged = entry is not None and entry["outputs"] == found
    if not dry_run:
        context.manifest.record("acquire", step_key("acquire", files=found), found)
    context.outputs["acquire"] = found
    return unchanged


def _files_of(settings: Mapping[str, Any]) -> list[str]:
    """Acquired files that a set is made of, that of its labels last."""
    labels = as_list(settings.get("labels", [])) if settings["reader"] == "matrix" else []
    return [*as_list(settings.get("files", [])), *labels]


def _part(context: Context, part: str) -> Part:
    sets = context.pipeline.table("ingest")
    settings = sets.get(part) or sets["train"]
    names = _files_of(settings)
    if any(name not in context.files for name in names):
        raise NotKnown("acquire")
    files = [context.files[name].path for name in names]
    return Part(settings, files, part, sets.get("split"), context.store_path("train"))


def _ingest_options(context: Context) -> dict[str, Any]:
    names = {"block_size": "block_bytes", "workers": "n_workers"}
    given = context.pipeline.table("ingest")
    return {names.get(key, key): value for key, value in given.items() if key not in ("train", "test", "split")}


def _ingest_key(context: Context, part: str) -> str:
    given = _part(context, part)
    options = {key: value for key, value in _ingest_options(context).items() if key not in ("n_workers", *_HOW)}
    train = context.of("ingest train")["identity"] if part == "test" else None
    return step_key(
        "ingest",
        part=part,
        settings=dict(given.settings),
        split=given.split,
        options=options,
        files=[context.files[name].sha256 for name in _files_of(given.settings)],
        train=train,
    )


def _ingest(context: Context, key: str, part: str) -> dict[str, Any]:
    del key
    path = context.store_path(part)
    given = read_part(_part(context, part))
    options = {**_ingest_options(context), **given.options, "overwrite": True}
    if part == "test":
        options |= {"like": context.store_path("train"), "n_features": None}
    store = run_ingest(given.source, path, given.labels, **options).store
    _check_unchanged(context)
    return {"path": str(path.relative_to(context.folder)), "identity": identity(store), "shape": list(store.shape)}


def _check_unchanged(context: Context) -> None:
    """Refuse what was made of files that changed while they were read."""
    for name, file in context.files.items():
        if not file.path.exists() or content_hash(file.path, context.manifest.files) != file.sha256:
            raise BadInput(f"acquire.{name}: {file.path} changed while it was read: run the pipeline again")


def identity(store: FeatureStore) -> str:
    """What a store holds: blocks, labels and classes."""
    return f"{store.fingerprint} {crc32c(store.labels.tobytes()):08x} {json.dumps(store.classes)}"


def _store_is_there(context: Context, outputs: dict[str, Any]) -> bool:
    try:
        return identity(open_store(context.folder / outputs["path"])) == outputs["identity"]
    except DamagedStore:
        return False


def _fit_key(context: Context) -> str:
    parameters = {key: value for key, value in context.pipeline.table("fit").items() if key not in _HOW}
    return step_key("fit", parameters=parameters, train=context.of("ingest train")["identity"])


def _fit(context: Context, key: str) -> dict[str, Any]:
    """Fit in a folder of this key, so that a fit that was interrupted is found again."""
    run = f"runs/{key[:12]}"
    store = open_store(context.store_path("train"))
    parameters = {"scheduler": os.environ.get("GDM_SCHEDULER"), **context.pipeline.table("fit")}
    grid = parameters.pop("tune", None)
    if grid is not None:
        parameters |= tune(store, parameters, grid, context.folder / run / "tuning.json")
    machine = GroupDiscoveryMachine(**parameters)
    directory = RunDirectory(context.folder / run)
    machine = directory.fit(machine, store, resume=True, callback=lambda iteration: logger.info("%s", iteration))
    earlier = context.manifest.steps.get("fit", {}).get("outputs", {})
    previous = earlier.get("run") if earlier.get("run") != run else earlier.get("previous")
    return {"run": run, "model": model_hash(directory.path), "previous": previous}


def model_hash(run: Path) -> str | None:
    """Checksum of a fitted model; None where there is none."""
    try:
        return str(json.loads((run / "model.json").read_bytes())["arrays_sha256"])
    except (OSError, ValueError, KeyError):
        return None


def _model_is_there(context: Context, outputs: dict[str, Any]) -> bool:
    return model_hash(context.folder / outputs["run"]) == outputs["model"]


def _tested(context: Context) -> str:
    part = context.test_part
    if part is None:
        raise NotKnown("ingest")
    return str(context.of(f"ingest {part}")["identity"])


def _evaluate_key(context: Context) -> str:
    settings = {key: value for key, value in context.pipeline.table("evaluate").items() if key != "min_accuracy"}
    return step_key("evaluate", model=context.of("fit")["model"], data=_tested(context), settings=settings)


def _evaluate(context: Context, key: str) -> dict[str, Any]:
    del key
    machine = GroupDiscoveryMachine.load(context.run())
    settings, part = context.pipeline.table("evaluate"), context.test_part
    assert part is not None
    scheduler = context.pipeline.table("fit").get("scheduler", os.environ.get("GDM_SCHEDULER"))
    facts = evaluate_store(machine, open_store(context.store_path(part)), settings.get("distributed", False), scheduler)
    facts = {"on": part, **facts}
    write_whole(context.run() / "evaluation.json", json.dumps(facts, indent=1).encode())
    return {"facts": facts}


def check_accuracy(context: Context) -> None:
    """Refuse a model that is worse than the pipeline allows; it is kept, but it is not the latest one."""
    wanted = context.pipeline.table("evaluate").get("min_accuracy")
    found = context.of("evaluate")["facts"]["accuracy"]
    if wanted is not None and found < wanted:
        raise BadInput(
            f"the accuracy is {found:.4f}, below evaluate.min_accuracy = {wanted}: look at {context.run()} and at what "
            "has changed in the data"
        )


def _evaluation_is_there(context: Context, outputs: dict[str, Any]) -> bool:
    del outputs
    return (context.run() / "evaluation.json").exists()


def _report_file(context: Context) -> Path:
    return context.run() / f"report.{context.pipeline.table('report').get('form', 'html')}"


def _report_key(context: Context) -> str:
    fit = context.of("fit")
    return step_key(
        "report",
        name=[context.pipeline.name, context.pipeline.settings.get("description")],
        settings=context.pipeline.table("report"),
        model=fit["model"],
        previous=fit["previous"],
        train=context.of("ingest train")["identity"],
        test=_tested(context),
    )


def _report(context: Context, key: str) -> dict[str, Any]:
    del key
    from gdm_dask.report import make_report

    machine = GroupDiscoveryMachine.load(context.run())
    file = _report_file(context)
    image = context.pipeline.table("report").get("image")
    stores = {part: context.store_path(part) for part in ("train", "test") if f"ingest {part}" in context.outputs}
    make_report(
        machine,
        file,
        title=context.pipeline.settings.get("description", context.pipeline.name),
        store=stores["train"],
        test=stores.get("test"),
        image_shape=None if image is None else tuple(image),
        **_comparison(context, machine),
    )
    return {"file": str(file.relative_to(context.folder))}


def _comparison(context: Context, machine: GroupDiscoveryMachine) -> dict[str, Any]:
    """The previous run, where it is still there and has the same features."""
    previous = context.of("fit")["previous"]
    if previous is None or model_hash(context.folder / previous) is None:
        return {}
    other = GroupDiscoveryMachine.load(context.folder / previous)
    if other.n_features_in_ != machine.n_features_in_:
        return {}
    return {"compare": other, "compare_name": previous}


def _report_is_there(context: Context, outputs: dict[str, Any]) -> bool:
    return (context.folder / outputs["file"]).exists()
