"""``fit`` finds out which kind of model it is given, and trains it: Keras models, torch modules, boosted trees.

Loops and checkpoints that all kinds share are in ``trainers``; ``training`` starts every run; the solvers of linear
models are in ``linear_model``.
"""
