"""Compiled kernels give the same bits in every process, whichever process compiled them."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from numba import int64
from numba.core.dispatcher import Dispatcher
from numba.experimental import jitclass

import gdm_dask

#: Called only from Python, so it has one compiled form.
MAY_REORDER = {"_sum_hinge", "fill_hinge", "_sum_squared", "_fill_squared", "_sum_epsilon", "_fill_epsilon"}


@pytest.mark.parametrize("name", [module.name for module in pkgutil.walk_packages(gdm_dask.__path__, "gdm_dask.")])
def test_no_kernel_that_others_call_leaves_the_order_of_sums_to_the_compiler(name: str) -> None:
    kernels = [value for value in vars(importlib.import_module(name)).values() if isinstance(value, Dispatcher)]
    assert {kernel.__name__ for kernel in kernels if kernel.targetoptions.get("fastmath")} <= MAY_REORDER


def test_other_code_that_has_no_module_compiles_beside_ours() -> None:
    """Other packages compile such classes, and listeners for our kernels hear of them, too."""

    class Counter:
        def __init__(self) -> None:
            self.count = 7

    assert jitclass([("count", int64)])(Counter)().count == 7
