"""The client's side of a run: its loop, its commands, its history and its handle."""
