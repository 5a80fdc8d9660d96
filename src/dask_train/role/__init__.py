"""The process in which one role runs, and what a user's function sees there. Nothing here imports Dask."""
