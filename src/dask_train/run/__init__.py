"""PURE: what a run decides, as values and functions of values; no Dask, framework, clock, thread or file."""
