"""Services of the machine: files, memory, compiled kernels, locks, progress."""
