"""Identity of models: the same digest in each process for the same weights, configuration and code."""
