"""Step 4: the loss function and its options."""
