"""A search in the client: what Optuna is asked and told, the slots that train trials, and what comes of it."""
