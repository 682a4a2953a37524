"""Commands that make and inspect stores: ingest, info, verify."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from gdm_dask.cli.main import app, existing, out
from gdm_dask.errors import BadInput
from gdm_dask.resources import format_bytes

if TYPE_CHECKING:
    from gdm_dask.store import FeatureStore

# The options of `gdm ingest`, in the order of its help.
Paths = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE... STORE",
        help="svmlight text (also .gz .bz2 .xz; several files are one set), scipy .npz, Matrix Market .mtx, "
        "dense .npy or .zarr; last the store to make.",
    ),
]
Labels = Annotated[str | None, typer.Option(help="Labels of a matrix file: .npy, or text with one per line.")]
NFeatures = Annotated[int | None, typer.Option(help="Size of the feature space; features beyond are left out.")]
Like = Annotated[str | None, typer.Option(help="A store whose features and classes this set shares (test sets).")]
IndexBase = Annotated[int, typer.Option(help="1 if the text counts features from 1, 0 if from 0.")]
OnError = Annotated[str, typer.Option(help="raise: end at a malformed line; skip: leave such lines out, count them.")]
DType = Annotated[str, typer.Option(help="Stored values: auto (exact, as narrow as possible), float32 or float64.")]
Codec = Annotated[str, typer.Option(help="Compression: lz4 (fast), zstd (small) or none.")]
BlockSize = Annotated[str, typer.Option(help="Decoded size of a block, the unit of parallel work.")]
MemoryLimit = Annotated[str | None, typer.Option(help="Peak memory of all processes; a quarter of the machine's.")]
Scheduler = Annotated[str, typer.Option(help="synchronous, threads, processes, local, or a Dask scheduler's address.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Parallel tasks; one per core.")]
Scratch = Annotated[str | None, typer.Option(help="Folder for scratch files; beside the store.")]
RunSize = Annotated[str | None, typer.Option(help="Bytes of source sorted at a time.", hidden=True)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there.")]
STORE = typer.Argument(metavar="STORE", help="A feature store: folder or URL.")


@app.command()
def ingest(
    paths: Paths,
    labels: Labels = None,
    n_features: NFeatures = None,
    like: Like = None,
    index_base: IndexBase = 1,
    on_error: OnError = "raise",
    dtype: DType = "auto",
    codec: Codec = "lz4",
    block_size: BlockSize = "64MiB",
    memory_limit: MemoryLimit = None,
    scheduler: Scheduler = "threads",
    workers: Workers = None,
    scratch: Scratch = None,
    overwrite: Overwrite = False,
    run_size: RunSize = None,
) -> None:
    """Turn a data set into a feature store, whatever its size.

    A killed ingest goes on where it stopped when the same command is given again.

      gdm ingest train.svm.bz2 train.zarr

      gdm ingest test.svm test.zarr --like train.zarr

      gdm ingest counts.npz counts.zarr --labels y.txt --memory-limit 2GB
    """
    if len(paths) < 2:
        raise BadInput("give the source and the store to make: gdm ingest SOURCE... STORE")
    from gdm_dask.ingestion import run_ingest

    *sources, store = paths
    done = run_ingest(
        [existing(path) for path in sources], store, labels, n_features=n_features, like=like, index_base=index_base,
        on_error=on_error, dtype=dtype, codec=codec, block_bytes=block_size, memory_limit=memory_limit,
        scheduler=scheduler, n_workers=workers, scratch=scratch, overwrite=overwrite,
        run_bytes=run_size,
    )  # fmt: skip
    features, samples = done.store.shape
    out.print(
        f"{escape(store)}: {features:,} features x {samples:,} samples, {done.store.nnz:,} nonzeros, "
        f"{done.store.n_blocks:,} blocks",
        highlight=False,
        soft_wrap=True,
    )


def describe(store: FeatureStore) -> dict[str, Any]:
    """What ``gdm info`` tells, as plain values."""
    features, samples = store.shape
    positive = int((store.labels > 0).sum())
    on_disk = store.size_on_disk()
    return {
        "store": store.url,
        "kind": store.manifest.kind,
        "features": features,
        "samples": samples,
        "nonzeros": store.nnz,
        "density": store.nnz / max(1, features * samples),
        "classes": {str(store.classes[0]): samples - positive, str(store.classes[1]): positive},
        "values": store.manifest.value_type,
        "codec": store.manifest.codec,
        "blocks": store.n_blocks,
        "bytes_decoded": store.nbytes,
        "bytes_on_disk": on_disk,
        "compression_ratio": store.nbytes / max(1, on_disk),
        "feature_names": store.has_names,
        "sample_ids": store.sample_ids is not None,
        "fingerprint": store.fingerprint,
        "provenance": store.manifest.provenance,
    }


@app.command()
def info(
    store: Annotated[str, STORE],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Print what a store holds."""
    from gdm_dask.store import open_store

    facts = describe(open_store(store))
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    classes = ", ".join(f"{name} ({count:,})" for name, count in facts["classes"].items())
    source = facts["provenance"].get("source", {})
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in (
        ("store", facts["store"]),
        ("shape", f"{facts['features']:,} features x {facts['samples']:,} samples"),
        ("nonzeros", f"{facts['nonzeros']:,} (density {facts['density']:.3g})"),
        ("classes", f"-1, +1 = {classes}"),
        ("layout", f"{facts['kind']}, values: {facts['values']}, codec: {facts['codec']}"),
        ("blocks", f"{facts['blocks']:,} of about {format_bytes(facts['bytes_decoded'] / max(1, facts['blocks']))}"),
        ("size", f"{format_bytes(facts['bytes_on_disk'])} on disk, {format_bytes(facts['bytes_decoded'])} decoded "
                 f"(ratio {facts['compression_ratio']:.2f})"),
        ("names", ("features" if facts["feature_names"] else "no feature names")
                  + (", sample ids" if facts["sample_ids"] else "")),
        ("source", f"{source.get('format', '?')} {' '.join(map(str, source.get('files', [])))}".strip()),
        ("fingerprint", facts["fingerprint"][:16]),
    ):  # fmt: skip
        table.add_row(f"[bold]{name}[/]", escape(value))
    out.print(table, soft_wrap=True)


@app.command()
def verify(store: Annotated[str, STORE]) -> None:
    """Read all of a store and check it against the checksums that were written with it."""
    from gdm_dask.progress import report
    from gdm_dask.store import open_store

    opened = open_store(store)
    with report("verify", opened.nbytes) as progress:
        opened.verify(progress)
    out.print(f"{escape(store)}: all {opened.n_blocks:,} blocks are whole", highlight=False, soft_wrap=True)
