"""Steps 1, 4 and 5 in bfloat16 and float16, and under automatic mixed precision."""
