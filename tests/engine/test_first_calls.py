"""Threads that do something for the first time at the same moment, such as the first tasks of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any

import prometheus_client

from gdm_dask.system import metrics


def met(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that waits until a second thread is in it, for a moment."""
    both = threading.Barrier(2)

    def waiting(*args: Any, **options: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            both.wait(0.5)
        return function(*args, **options)

    return waiting


def test_metrics_are_published_once(monkeypatch) -> None:
    registry = prometheus_client.CollectorRegistry(auto_describe=True)
    monkeypatch.setattr(registry, "register", met(registry.register))
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    monkeypatch.setattr(metrics, "_register", cache(metrics._register.__wrapped__))
    monkeypatch.setattr(metrics, "SOURCES", [lambda: [metrics.Metric("gdm_x", "X.", 1.0)]])
    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(metrics.publish) for _ in range(2)]:
            future.result()
    assert registry.get_sample_value("gdm_x") == 1.0
