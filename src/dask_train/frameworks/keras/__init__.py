"""Keras: models taken apart and put together, and the adapter of ``fit``. Importing the package imports no Keras."""
