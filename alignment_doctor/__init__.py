"""The doctor: examines a training run and its data, and says what is wrong, where, and what to do."""
