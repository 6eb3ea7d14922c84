"""Step 5: gradients, optimizers, learning rate schedules, and whole updates."""
