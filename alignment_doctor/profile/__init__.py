"""Where the time and the memory of a training run go."""
