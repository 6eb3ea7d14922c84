"""Proof that the Paddle model is the PyTorch model: records, comparison, tolerances, weights and the steps."""

import mobilenetv3_paddle  # noqa: F401  (quiets a warning of Paddle's import)
