"""The version of this package; what both ends of a run must agree on."""

__version__ = "0.1.0"
