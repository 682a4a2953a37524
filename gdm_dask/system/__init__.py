"""The machine we run on: files, memory, compiled kernels, locks, progress."""
