"""Reports on a fit: a self-contained HTML page, Markdown or JSON."""

from gdm_dask.report.gather import gather
from gdm_dask.report.write import FORMS, make_report, render

__all__ = ["FORMS", "gather", "make_report", "render"]
