"""The settings of a script, such as Keras' floatx or scikit-learn's configuration, in processes that compute for it."""
