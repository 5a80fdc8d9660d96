"""``fit``: which kind of model it is given, and the kinds that are built in but for linear models.

Their loops, checkpoints and results are those of ``trainers``; every run is started by ``training``.
"""
