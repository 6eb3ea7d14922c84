"""Pictures to batches: transforms, dataset, mixing and loading over worker processes and ranks."""

from mobilenetv3_ref.data.dataset import ImageDataset
from mobilenetv3_ref.data.loader import build_loader
from mobilenetv3_ref.data.mixing import mix_batch
from mobilenetv3_ref.data.transforms import eval_transform, train_transform

__all__ = ["ImageDataset", "build_loader", "eval_transform", "mix_batch", "train_transform"]
