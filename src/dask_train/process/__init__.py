"""Child processes of a Dask worker: started, watched, looked into, ended."""
