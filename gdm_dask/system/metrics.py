"""Metrics of this process for Prometheus: on the ``/metrics`` page of a Dask worker, and as text for a file.

Modules add functions to `SOURCES` that return their current metrics. Nothing here runs until somebody asks for them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """A value with its labels. The name of a counter ends in ``_total``; all others are gauges."""

    name: str
    help: str
    value: float
    labels: dict[str, str] = {}  # noqa: RUF012 (never changed)

    @property
    def kind(self) -> str:
        """Return the type for Prometheus."""
        return "counter" if self.name.endswith("_total") else "gauge"


Source = Callable[[], Iterable[Metric]]
SOURCES: list[Source] = []
_registering = threading.Lock()  # a second registration would be an error


def all_metrics() -> list[Metric]:
    """Return the current metrics of all sources, values of the same name together."""
    found = [metric for source in list(SOURCES) for metric in source()]
    return sorted(found, key=lambda metric: metric.name)


def exposition(metrics: Iterable[Metric]) -> str:
    r"""Return metrics in the text format of Prometheus; values of the same name must be together.

    >>> print(exposition([Metric("gdm_gap", "Gap.", 0.5, {"run": 'a "b"'})]), end="")
    # HELP gdm_gap Gap.
    # TYPE gdm_gap gauge
    gdm_gap{run="a \"b\""} 0.5
    """
    lines = []
    for name, same in groupby(metrics, key=lambda metric: metric.name):
        values = list(same)
        lines += [f"# HELP {name} {values[0].help}", f"# TYPE {name} {values[0].kind}"]
        lines += [f"{name}{_labels(metric.labels)} {float(metric.value)!r}" for metric in values]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: dict[str, str]) -> str:
    escape = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    pairs = [f'{name}="{value.translate(escape)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def unescaped(text: str) -> str:
    r"""Return the value of a label in the text format.

    >>> unescaped(r'a \"b\\')
    'a "b\\'
    """
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def publish() -> None:
    """Add all metrics to the registry of prometheus_client, which Dask workers serve; any thread may be the first."""
    with _registering:
        _register()


@cache
def _register() -> None:
    import prometheus_client

    prometheus_client.REGISTRY.register(_Collector())


class _Collector:
    """What prometheus_client asks for the metrics."""

    def collect(self) -> Iterable[Any]:
        """Yield a family of metrics for each name."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, same in groupby(all_metrics(), key=lambda metric: metric.name):
            metrics = list(same)
            family = CounterMetricFamily if metrics[0].kind == "counter" else GaugeMetricFamily
            shown = family(name, metrics[0].help, labels=list(metrics[0].labels))
            for metric in metrics:
                shown.add_metric(list(metric.labels.values()), metric.value)
            yield shown
