"""What all kinds of model share in a role process: the loop, the state of a rank, and checkpoints."""
