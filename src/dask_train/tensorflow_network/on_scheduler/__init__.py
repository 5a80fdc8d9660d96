"""What ``start_tensorflow`` and ``board`` have inside the Dask scheduler.

These modules travel there by value, with those of ``dask_train.scheduler`` that they use, under the same rules: they
import nothing else but the standard library and ``distributed``, and they answer with plain dictionaries.
"""
