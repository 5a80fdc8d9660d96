"""JAX: the adapter that runs name ``framework="jax"``. Importing the package imports no JAX."""
