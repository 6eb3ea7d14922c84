"""Step 6: whole training runs with recipe, averages, freezing, resumption and evaluation."""
