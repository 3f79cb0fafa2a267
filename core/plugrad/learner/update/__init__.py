"""One update: `run` makes the batch ready and runs a program, `step` is one gradient step of it."""
