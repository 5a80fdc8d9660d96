"""Keras models as values: a header and arrays, and back. Importing the package imports no Keras."""
