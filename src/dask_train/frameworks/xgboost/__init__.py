"""XGBoost: the adapter that runs name ``framework="xgboost"``. Importing the package imports no XGBoost."""
