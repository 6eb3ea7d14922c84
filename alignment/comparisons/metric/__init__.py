"""Step 3: predictions that count as right, and how they are counted."""
