"""What runs inside the Dask workers: agents of runs, and the segments that they hold."""
