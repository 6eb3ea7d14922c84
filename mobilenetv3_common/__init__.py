"""What both framework packages share: the training loop, evaluation, checkpoints, data and files. Imports neither framework."""

__version__ = "0.2.0"
