"""The only room that talks to Dask's scheduler and workers."""
