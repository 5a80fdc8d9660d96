"""Boosted trees: estimators of XGBoost and LightGBM, fitted by ranks on the rows where they lie."""
