"""A cluster whose workers are Slurm jobs of their own (dask-jobqueue), and a pipeline that uses it.

python deploy/slurm/cluster.py pipelines/webspam.toml --workers 8
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

#: What one Slurm job asks for; a worker in it.
WORKER = {"cores": 8, "processes": 1, "memory": "32GB", "walltime": "08:00:00", "local_directory": "/tmp"}


def start(n_workers: int, **options: Any) -> Any:
    """A cluster that asks Slurm for workers; the scheduler is in this process."""
    from dask_jobqueue import SLURMCluster

    cluster = SLURMCluster(**WORKER, **options)
    cluster.scale(n_workers)
    return cluster


def main() -> None:
    """Run a pipeline on the cluster as ``gdm run`` does: its log, its summary and its exit codes."""
    from gdm_dask.cli.main import run
    from gdm_dask.errors import BadInput
    from gdm_dask.pipeline import load_pipeline

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline")
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    try:
        load_pipeline(given.pipeline)
    except BadInput as error:  # before anything is asked of Slurm
        parser.error(str(error))
    with start(given.workers) as cluster:
        sys.argv = ["gdm", "run", given.pipeline, "--set", f"fit.scheduler={cluster.scheduler_address}"]
        run()


if __name__ == "__main__":
    main()
