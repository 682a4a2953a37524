"""Modules that the mother of the forks loads: third-party libraries, and numba's own start."""

from importlib import import_module

import numba

for name in (
    "dask.config", "distributed.cli.dask_scheduler", "distributed.cli.dask_worker", "pandas", "psutil",
    "rich.progress", "rich.table", "scipy.sparse.linalg", "sklearn.base", "typer.rich_utils", "zarr",
):  # fmt: skip
    import_module(name)


@numba.njit
def increase(number):
    return number + 1


increase(1)
