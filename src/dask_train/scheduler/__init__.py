"""What runs inside the Dask scheduler.

These modules travel there by value (``dask_train.cluster.by_value``), so that the scheduler needs no dask-train:
they import nothing but the standard library and ``distributed``, and they answer with plain dictionaries, which the
asking side turns into errors.
"""
