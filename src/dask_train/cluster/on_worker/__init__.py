"""What runs inside the Dask workers that carry a network."""
