"""What both framework packages share: file handling, the dataset index, decoding and sampling. Imports neither framework."""

__version__ = "0.1.0"
