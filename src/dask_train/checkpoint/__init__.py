"""Checkpoints: where they are kept, and that a torn one is never loaded."""
