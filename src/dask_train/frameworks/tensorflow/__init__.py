"""TensorFlow: its servers, on ports that are already known."""
