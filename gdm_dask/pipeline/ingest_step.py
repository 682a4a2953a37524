"""The step that makes a store from one part of the data of a pipeline."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from gdm_dask.errors import BadInput, DamagedStore
from gdm_dask.pipeline.acquire import content_hash
from gdm_dask.pipeline.schema import FROM_ONE, SCHEDULER, SIZE, SWITCH, TEXT, Key, Pipeline, Problem, Table, as_list
from gdm_dask.pipeline.step import HOW, Context, NotKnown, Step
from gdm_dask.store import FeatureStore, open_store

#: Keys of each reader.
_READERS: dict[str, dict[str, Key | Table]] = {
    "svmlight": {
        "index_base": Key(int, between=(0, 1)),
        "on_error": Key(str, choices=("raise", "skip")),
    },
    "matrix": {
        "labels": TEXT,  # acquired file with the labels, or a column of it (people:height)
        "target": TEXT,  # column of a table
        "covariates": TEXT,  # acquired table, or some columns of it (people:age,sex), or columns of obs
        "on_missing": Key(str, choices=("raise", "drop")),
        "drop": Key(str, several=True),  # columns of a table
    },
    "arrays": {
        "x": TEXT,
        "y": TEXT,
        "classes": Key(int, several=True),
        "image": Key(int, pair=True, between=FROM_ONE),
        "shift": Key(int, between=(0, 64)),
        "divide": Key(float, between=(1e-300, float("inf"))),
        "add": Key(float),
    },
    "documents": {
        "text": TEXT,
        "label": TEXT,
        "strip_headers": SWITCH,
        "analyzer": Key(str, choices=("byte", "char", "word")),
        "ngrams": Key(int, several=True, between=(1, 8)),
        "min_df": Key(int, between=FROM_ONE),
        "unit_rows": SWITCH,
        "hashed": Key(int, between=(2, 2**31)),
        "hashed_names": SWITCH,
    },
    "twin": {
        "like": Key(str, choices=("webspam", "kdd2010", "url", "news20", "paper")),
        "scale": Key(float, between=(1e-9, 1e3)),
        "seed": Key(int, between=(0, 2**63 - 1)),
        "part": Key(str, choices=("train", "test")),
    },
}
#: Keys that all readers share; the weights are a column of the labels (matrix), an array (arrays) or a key (documents).
_SHARED: dict[str, Key | Table] = {
    "reader": Key(str, required=True, choices=tuple(_READERS)),
    "files": Key(str, several=True),
    "sample_weight": TEXT,
}
#: Number of files that a reader reads: a matrix can have a second one with its labels.
_MOST_FILES = {"matrix": 2, "arrays": 1, "documents": 1, "twin": 0}
_SET = Table(_SHARED | {name: key for keys in _READERS.values() for name, key in keys.items()})


class Ingest(Step):
    """Make a store from one part of the data, "train" or "test"."""

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
            "block_size": SIZE,
            "memory_limit": SIZE,
            "scheduler": SCHEDULER,
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
        own, named = _READERS[reader], as_list(table.get("files", []))
        for key in table:
            if key not in own and key not in _SHARED:
                return f"ingest.{part}.{key}", f"is not a key of the {reader} reader; its keys are {', '.join(own)}"
        most = _MOST_FILES.get(reader, len(named))
        if len(named) > most:
            return f"ingest.{part}.files", f"names {len(named)} files, but the {reader} reader reads at most {most}"
        for key in ("files", "labels"):
            for name in (one.partition(":")[0] for one in as_list(table.get(key, []))):
                if name not in files:
                    known = ", ".join(files) or "none"
                    return f"ingest.{part}.{key}", f"names [acquire.{name}], which is missing; there are {known}"
        needed = "like" if reader == "twin" else "files"
        return None if needed in table else (f"ingest.{part}.{needed}", f"is missing: the {reader} reader needs it")

    @staticmethod
    def _files_of(settings: Mapping[str, Any], files: Container[str]) -> list[str]:
        """Return the acquired files of a set, with those of its labels and covariates last."""
        return [*as_list(settings.get("files", [])), *Ingest._tables_of(settings, files).values()]

    @staticmethod
    def _tables_of(settings: Mapping[str, Any], files: Container[str]) -> dict[str, str]:
        """Return the acquired files of the labels and the covariates of a matrix, by key."""
        names = {key: settings[key].partition(":")[0] for key in ("labels", "covariates") if key in settings}
        return {key: name for key, name in names.items() if settings["reader"] == "matrix" and name in files}

    def _settings(self, context: Context) -> dict[str, Any]:
        """Return the table of this part; a split has only that of the training set."""
        sets = context.pipeline.table("ingest")
        found: dict[str, Any] = sets.get(self.part) or sets["train"]
        return found

    def _options(self, context: Context) -> dict[str, Any]:
        return {
            key: value
            for key, value in context.pipeline.table("ingest").items()
            if key not in ("train", "test", "split")
        }

    def inputs(self, context: Context) -> dict[str, Any]:
        """Return the settings, the files, and for a test set the training store."""
        settings = self._settings(context)
        names = self._files_of(settings, context.pipeline.table("acquire"))
        if not context.files.keys() >= set(names):
            raise NotKnown
        return {
            "part": self.part,
            "settings": settings,
            "split": context.pipeline.table("ingest").get("split"),
            "options": {key: value for key, value in self._options(context).items() if key not in HOW},
            "files": [context.files[name].sha256 for name in names],
            "train": context.of("ingest train")["identity"] if self.part == "test" else None,
        }

    def run(self, context: Context, key: str) -> dict[str, Any]:
        """Ingest the files."""
        from gdm_dask.ingestion import run_ingest
        from gdm_dask.pipeline.readers import Part, read_part

        path, settings = context.pipeline.store(self.part), self._settings(context)
        files = [context.files[name].path for name in as_list(settings.get("files", []))]
        tables = {
            key: f"{context.files[name].path}{settings[key][len(name) :]}"
            for key, name in self._tables_of(settings, context.files).items()
        }
        split = context.pipeline.table("ingest").get("split")
        given = read_part(Part(settings, files, self.part, split, context.pipeline.store("train"), tables))
        names = {"block_size": "block_bytes", "workers": "n_workers"}
        options = {names.get(name, name): value for name, value in self._options(context).items()}
        options |= {**given.options, "overwrite": True}
        if self.part == "test":
            options |= {"like": context.pipeline.store("train"), "n_features": None}
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
