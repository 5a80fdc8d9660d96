"""Searches over estimators of scikit-learn: trials that Optuna suggests, and grids over pipelines."""
