"""What runs in a model process, and the values that travel there. Nothing here imports Dask."""
