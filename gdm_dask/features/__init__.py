"""Feature rows in memory and all computations on them; no Dask, no Zarr.

Every result of a kernel depends on one row, or one pair of rows, and is summed in an order fixed by the kernel. So
results are the same to the bit for every division into blocks, every scheduler and every number of workers. Sums are
float64 whatever the type of the values. ``values is None`` means that all nonzeros are 1; with a `power` of ten, the
values are integers to be divided by it. numba compiles these cases separately.
"""
