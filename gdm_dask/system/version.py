"""The version of the package, as it is installed."""

from importlib.metadata import version

VERSION = version("gdm_dask")
