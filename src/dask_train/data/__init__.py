"""Rows: how they lie in shared memory, and which of them form which batch. NumPy only, no Dask."""
