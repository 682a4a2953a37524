"""Commands that make and inspect stores: ingest, info, verify."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from gdm_dask.cli import options as opt
from gdm_dask.cli.app import app
from gdm_dask.cli.console import escape, out, show
from gdm_dask.errors import BadInput
from gdm_dask.system.resources import format_bytes, plural

if TYPE_CHECKING:
    from gdm_dask.store import FeatureStore

# Options of `gdm ingest`, in the order of its help.
Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE... STORE",
        help="svmlight text (also .gz .bz2 .xz; several files are one set), tables .csv, .tsv, .parquet, "
        "AnnData .h5ad, PLINK .bed, scipy .npz, Matrix Market .mtx, dense .npy or .zarr. The last argument is the new "
        "store.",
    ),
]
Targets = Annotated[
    str | None,
    typer.Option(
        "--target",
        "--labels",
        metavar="COLUMN|FILE",
        help="Labels or numbers: a column of a table or of obs, or for any matrix a file (.npy, .csv, .tsv or text) or "
        "a column of one (cells.csv:cell_type, people.pheno:height).",
    ),
]
SampleWeight = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|COLUMN",
        help="Weights of the samples, which fits use: .npy, .csv or text; or a column of the table, of the "
        "documents, or of a --target .csv with a header.",
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column of a table to leave out, such as an identifier; may be repeated."),
]
NFeatures = Annotated[int | None, typer.Option(help="Number of features; features beyond it are dropped.")]
Like = Annotated[str | None, typer.Option(help="Store whose features and target to use, for test sets.")]
IndexBase = Annotated[int, typer.Option(help="Number of the first feature in the text: 1 or 0.")]
Covariates = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|COLUMNS",
        help="Covariates, which become further features that fits include: a table (.csv, .tsv, or text in columns), "
        "or some columns of it (people.cov:age,sex) or of obs (age,batch).",
    ),
]
OnMissing = Annotated[
    str, typer.Option(help="On a sample without a target or a covariate: raise an error, or drop it and count it.")
]
OnError = Annotated[str, typer.Option(help="On a malformed line: raise an error, or skip the line and count it.")]
DType = Annotated[str, typer.Option(help="Stored values: auto (exact, as narrow as possible), float32 or float64.")]
Codec = Annotated[str, typer.Option(help="Compression: lz4 (fast), zstd (small) or none.")]
BlockSize = Annotated[str, typer.Option(help="Decoded size of a block, the unit of parallel work.")]
Scheduler = Annotated[str, opt.place(help="synchronous, threads, processes, local, or a Dask scheduler's address.")]
Workers = Annotated[
    int | None, opt.place(min=1, help="Number of parallel tasks; by default one per core, and two more for threads.")
]
Scratch = Annotated[str | None, opt.place(help="Folder for scratch files; by default beside the store.")]
RunSize = Annotated[str | None, opt.place(help="Bytes of source sorted at a time.", hidden=True)]
Overwrite = Annotated[bool, opt.place("--overwrite", help="Replace an existing store.")]

_documents = functools.partial(opt.place, rich_help_panel="Raw documents")
Text = Annotated[
    bool,
    _documents(
        "--text",
        help="The source is raw documents: a folder per class, .csv, .tsv, .jsonl, or text.bin with index.npz.",
    ),
]
Analyzer = Annotated[str, _documents(help="Unit of the n-grams: byte, char or word.")]
NGrams = Annotated[str, _documents(help="Length of the n-grams, or shortest-longest.")]
MinDf = Annotated[int, _documents(help="Minimum number of documents that an n-gram must occur in.")]
Counts = Annotated[
    bool,
    _documents("--counts", help="Keep counts instead of scaling each document to unit length."),
]
Hashed = Annotated[
    int | None,
    _documents(help="Hash n-grams into this many features instead of counting a vocabulary."),
]
HashedNames = Annotated[
    bool,
    _documents("--hashed-names", help="Name the hashed features; takes one more pass."),
]
StripHeaders = Annotated[
    bool,
    _documents("--strip-headers", help="Remove mail headers except the subject: they reveal the class."),
]  # fmt: skip
TextColumn = Annotated[str, _documents(help="Column or key that holds the text.")]
LabelColumn = Annotated[str, _documents(help="Column or key that holds the class.")]


@app.command()
@opt.takes(security=opt.security, storage=opt.storage)
def ingest(
    paths: Paths,
    target: Targets = None,
    sample_weight: SampleWeight = None,
    drop: Drop = None,
    task: opt.Task = None,
    n_features: NFeatures = None,
    like: Like = None,
    covariates: Covariates = None,
    on_missing: OnMissing = "raise",
    index_base: IndexBase = 1,
    on_error: OnError = "raise",
    dtype: DType = "auto",
    codec: Codec = "lz4",
    block_size: BlockSize = "64MiB",
    memory_limit: opt.MemoryLimit = None,
    scheduler: Scheduler = "threads",
    workers: Workers = None,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
    run_size: RunSize = None,
    text: Text = False,
    analyzer: Analyzer = "byte",
    ngrams: NGrams = "4",
    min_df: MinDf = 1,
    counts: Counts = False,
    hashed: Hashed = None,
    hashed_names: HashedNames = False,
    strip_headers: StripHeaders = False,
    text_column: TextColumn = "text",
    label_column: LabelColumn = "label",
    storage: Any = None,
    security: Any = None,
) -> None:
    """Turn a data set of any size into a feature store.

    Repeat the command to resume an interrupted ingest.

      gdm ingest train.svm.bz2 train.zarr

      gdm ingest test.svm test.zarr --like train.zarr

      gdm ingest genes.csv.gz genes.zarr --target diagnosis --drop patient

      gdm ingest counts.npz counts.zarr --target y.txt --memory-limit 2GB

      gdm ingest people.bed people.zarr --covariates people.cov:age,sex --on-missing drop

      gdm ingest --text mails/ mails.zarr --strip-headers --ngrams 4 --min-df 2
    """
    if len(paths) < 2:
        raise BadInput("gdm ingest needs a source and the name of the new store: gdm ingest SOURCE... STORE")
    from gdm_dask.ingestion import run_ingest
    from gdm_dask.store.folder import Url, local_folder

    *sources, store = paths
    source: Any = [_existing(path) for path in sources]
    options: dict[str, Any] = {"sample_weight": sample_weight, "drop": drop or ()}
    if text:
        from gdm_dask.pipeline.readers import Part, read_part

        _check_free(store, storage, overwrite)
        if len(sources) > 1:
            raise BadInput(f"--text takes one folder or file of documents, got a second one: {sources[1]}")
        settings = {
            "reader": "documents", "text": text_column, "label": label_column, "strip_headers": strip_headers,
            "analyzer": analyzer, "ngrams": _lengths(ngrams), "min_df": min_df, "unit_rows": not counts,
            "hashed": hashed, "hashed_names": hashed_names,
        }  # fmt: skip
        if sample_weight is not None and not Path(sample_weight).is_file():
            settings["sample_weight"] = sample_weight
        like = like and Url(like, storage)
        documents = local_folder(sources[0], "the place of raw documents")
        found = read_part(Part(settings, [documents], "test" if like else "train", None, like or ""))
        source, options = found.source, options | found.options
    with opt.chosen_scheduler(scheduler, security) as chosen:
        done = run_ingest(
            source, store, target, task=task, n_features=n_features, like=like,
            index_base=index_base, on_error=on_error, dtype=dtype, codec=codec, block_bytes=block_size,
            memory_limit=memory_limit, scheduler=chosen, n_workers=workers, scratch=scratch, overwrite=overwrite,
            storage_options=storage, run_bytes=run_size, covariates=covariates, on_missing=on_missing, **options,
        )  # fmt: skip
    features, samples = done.store.shape
    compiling = f" (compiling took {done.compiling:.1f} s)" if done.compiling else ""
    out.print(
        f"{escape(store)}: {features:,} features x {samples:,} samples, {done.store.nnz:,} nonzeros, "
        f"{plural(done.store.n_blocks, 'block')}{compiling}",
        highlight=False,
        soft_wrap=True,
    )


def _existing(path: str) -> str:
    """Return a path or URL unchanged; refuse a missing local path by name."""
    if "://" not in path and not Path(path).exists():
        raise BadInput(f"{path}: no such file or folder")
    return path


def _check_free(store: str, storage: dict[str, Any] | None, overwrite: bool) -> None:
    """Refuse an existing store before the vocabulary is counted, not after."""
    from gdm_dask.ingestion.staging import Staging
    from gdm_dask.store.folder import Folder
    from gdm_dask.store.layout import ROOT

    target = Folder(store, storage)
    if not overwrite and ROOT in target.names() and not Staging(target).path.exists():
        raise BadInput(f"{store} exists: choose another name, or pass --overwrite to replace it")


def _lengths(ngrams: str) -> list[int]:
    """Return the shortest and the longest length of n-grams, such as 1-2; a single one is both."""
    shortest, _, longest = ngrams.partition("-")
    if not shortest.isdigit() or not (longest or shortest).isdigit():
        raise BadInput(f"--ngrams must be a length, such as 4, or two, such as 1-2, got {ngrams}")
    return [int(shortest), int(longest or shortest)]


def describe(store: FeatureStore) -> dict[str, Any]:
    """Return the facts for ``gdm info`` as plain values."""
    features, samples = store.shape
    on_disk = store.size_on_disk()
    return {
        "store": store.url,
        "kind": store.manifest.kind,
        "features": features,
        "samples": samples,
        "nonzeros": store.nnz,
        "density": store.nnz / max(1, features * samples),
        "target": None if store.target is None else store.target.to_json(),
        "classes": _class_counts(store),
        "values": store.manifest.value_type,
        "codec": store.manifest.codec,
        "blocks": store.n_blocks,
        "bytes_decoded": store.nbytes,
        "bytes_on_disk": on_disk,
        "compression_ratio": store.nbytes / max(1, on_disk),
        "feature_names": store.has_names,
        "sample_ids": store.sample_ids is not None,
        "sample_weight": store.sample_weight is not None,
        "covariates": store.covariates,
        "fingerprint": store.fingerprint,
        "provenance": store.manifest.provenance,
    }


def _class_counts(store: FeatureStore) -> dict[str, int]:
    """Count the samples of each class."""
    if not store.classes:
        return {}
    counts = np.bincount(store.codes, minlength=len(store.classes)).tolist()
    return dict(zip(map(str, store.classes), counts, strict=True))


def _target_text(facts: dict[str, Any]) -> str:
    """Describe the target in one line: its classes with their samples (at most ten), or its numbers."""
    if facts["target"] is None:
        return "none: fit with --target FILE"
    if facts["target"]["kind"] == "numbers":
        columns = zip(facts["target"]["means"], facts["target"]["scales"], strict=True)
        return "numbers: " + ", ".join(f"{mean:.4g} +- {scale:.4g}" for mean, scale in columns)
    shown = [f"{name} ({count:,})" for name, count in facts["classes"].items()]
    more = ", ..." if len(shown) > 10 else ""
    return f"{len(shown)} classes: " + ", ".join(shown[:10]) + more


@app.command()
@opt.takes(storage=opt.storage)
def info(
    store: Annotated[str, typer.Argument(metavar="STORE|RUN", help="A feature store, or the run directory of a fit.")],
    as_json: opt.AsJson = False,
    storage: Any = None,
) -> None:
    """Describe a store, or the fitted model of a run directory."""
    if Path(store, "model.json").is_file():
        _describe_model(Path(store), as_json)
        return
    from gdm_dask.store import open_store

    facts = describe(open_store(store, storage))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    source = facts["provenance"].get("source", {})
    show([
        ("store", facts["store"]),
        ("shape", f"{facts['features']:,} features x {facts['samples']:,} samples"),
        ("nonzeros", f"{facts['nonzeros']:,} (density {facts['density']:.3g})"),
        ("target", _target_text(facts) + ("; with sample weights" if facts["sample_weight"] else "")),
        *([("covariates", ", ".join(facts["covariates"]))] if facts["covariates"] else []),
        ("layout", f"{facts['kind']}, values: {facts['values']}, codec: {facts['codec']}"),
        ("blocks", f"{facts['blocks']:,} of about {format_bytes(facts['bytes_decoded'] / max(1, facts['blocks']))}"),
        ("size", f"{format_bytes(facts['bytes_on_disk'])} on disk, {format_bytes(facts['bytes_decoded'])} decoded "
                 f"(ratio {facts['compression_ratio']:.2f})"),
        ("names", ("features" if facts["feature_names"] else "no feature names")
                  + (", sample ids" if facts["sample_ids"] else "")),
        ("source", f"{source.get('format', '?')} {' '.join(map(str, source.get('files', [])))}".strip()),
        ("fingerprint", facts["fingerprint"][:16]),
    ])  # fmt: skip


def _describe_model(run: Path, as_json: bool) -> None:
    from gdm_dask import load_model
    from gdm_dask.cli.model_commands import run_facts, summarise

    model, fitted_on = load_model(run), run_facts(run)
    if as_json:
        facts = {
            "estimator": type(model).__name__,
            "parameters": model.get_params(),
            "n_supports": model.coef_.shape[1],
        }
        typer.echo(json.dumps({"run": str(run), **fitted_on, **facts, "target": model.target_.to_json()}, indent=2))
        return
    parameters = " ".join(repr(model).split())
    summarise(model, run, [("estimator", parameters), ("fitted on", fitted_on.get("store", "a matrix"))])


@app.command()
@opt.takes(storage=opt.storage)
def verify(store: opt.Store, storage: Any = None) -> None:
    """Read a whole store and compare it with its checksums."""
    from gdm_dask.store import open_store
    from gdm_dask.system.progress import report

    opened = open_store(store, storage)
    with report("verify", opened.nbytes) as progress:
        opened.verify(progress)
    out.print(f"{escape(store)}: {plural(opened.n_blocks, 'block')}, all intact", highlight=False, soft_wrap=True)
