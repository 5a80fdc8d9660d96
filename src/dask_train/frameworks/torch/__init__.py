"""PyTorch: one process group over the roles that train."""
