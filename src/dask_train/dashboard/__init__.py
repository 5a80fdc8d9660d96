"""The page of runs in Dask's own dashboard, and their metrics.

These modules travel to the scheduler by value (``dask_train.cluster.by_value``), as a plug-in of their own, so that the
scheduler needs no dask-train: they import nothing but the standard library, and inside functions, where they are there,
``bokeh``, ``prometheus_client`` and ``distributed``'s dashboard. Notes on their own parts are comments where they can
be: docstrings travel along.
"""
