"""LightGBM: the adapter that runs name ``framework="lightgbm"``. Importing the package imports no LightGBM."""
