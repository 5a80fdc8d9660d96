"""What a cluster tells about itself, and what is wrong with it."""
