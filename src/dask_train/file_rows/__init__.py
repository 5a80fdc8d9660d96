"""Files as rows: listed in the client, read by tasks of Dask, decoded in role processes for each batch."""
