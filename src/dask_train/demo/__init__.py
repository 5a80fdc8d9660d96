"""The main job: Dask prepares many copies of MNIST, and a TensorFlow network in its workers trains on them.

A program on top of the library, after Matthew Rocklin's "Experiment with Dask and TensorFlow" (2017). ``dask train
demo`` and ``examples/blog_mnist.py`` run it; nothing in the library imports it.
"""
