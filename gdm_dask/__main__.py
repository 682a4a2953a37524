"""``python -m gdm_dask`` is the command ``gdm`` of this environment, even if ``gdm`` is not on the PATH."""

from gdm_dask.cli.main import run

if __name__ == "__main__":
    run()
