"""Data sets in shared memory: published, persisted, opened; a run's data, and when it is released; streaming."""
