"""Pictures to batches: transforms, dataset, mixing and loading over worker threads."""

from projects.resnet50.in_mindspore.data.dataset import ImageDataset
from projects.resnet50.in_mindspore.data.loader import build_loader
from projects.resnet50.in_mindspore.data.mixing import mix_batch
from projects.resnet50.in_mindspore.data.transforms import eval_transform, train_transform

__all__ = ["ImageDataset", "build_loader", "eval_transform", "mix_batch", "train_transform"]
