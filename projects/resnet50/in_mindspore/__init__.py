"""Data, metric, loss and training in MindSpore: the files and names of ``mobilenetv3_ref`` and ``mobilenetv3_paddle``."""
