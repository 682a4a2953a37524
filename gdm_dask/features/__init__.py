"""Rows of features in memory, and all that is computed from them; no Dask, no Zarr.

Every number that comes out of a kernel depends on one row, or one pair of rows, and is summed in an order that the
kernel fixes: results are the same to the bit for every cut into blocks, every scheduler and every number of workers.
Sums are float64 whatever the values are. ``values is None`` means that all nonzeros are 1, and a `power` of ten that
the values are whole numbers over it; numba compiles these cases separately.
"""
