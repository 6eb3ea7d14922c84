"""Proof that the Paddle model is the PyTorch model: records, comparison, tolerances, weights and the steps."""
