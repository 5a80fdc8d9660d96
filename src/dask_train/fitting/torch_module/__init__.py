"""Modules of torch, trained by ``fit``: the client's part, and what its roles do."""
