"""Pictures to batches: transforms, dataset, mixing and loading over worker processes and ranks."""

from mobilenetv3_common.preprocess import eval_transform
from mobilenetv3_paddle.data.dataset import ImageDataset
from mobilenetv3_paddle.data.loader import build_loader
from mobilenetv3_paddle.data.mixing import mix_batch
from mobilenetv3_paddle.data.transforms import train_transform

__all__ = ["ImageDataset", "build_loader", "eval_transform", "mix_batch", "train_transform"]
