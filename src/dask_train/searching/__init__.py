"""``search``: Optuna's search over Keras models, many trials at a time."""
