"""One folder a framework; nothing here is imported before it is asked for."""
