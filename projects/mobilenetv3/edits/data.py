"""Faults of decoding, transforms, order, batches, mixing and shards."""

from .base import DATASET, LOADER, MIXING, PREPROCESS, TRANSFORMS, fault

ARRAYS = "    arrays = np\n"
LEVELS = "(levels - np.float32(m)) / np.float32(s)"
ERASED = "pixels[:, top : top + height, left : left + width] = 0.0"
BLACK = "(-np.array(preset.mean, np.float32) / np.array(preset.std, np.float32))[:, None, None]"
CROP_AND_RESIZE = 'F.resize(F.crop(image, *params.crop), (preset.crop_size, preset.crop_size), "bilinear")'
REGION = "np.s_[..., top : top + height, left : left + width]"
SHARES = "np.float32(params.lam), np.float32(1.0 - params.lam)"


def data(location: str, hint: str, name: str, *changes: tuple[str, str, str]) -> None:
    fault("data", 2, location, hint, name, *changes)


def method(text: str) -> tuple[str, str, str]:
    """A method of the data set besides its own."""
    return DATASET, ARRAYS, ARRAYS + text


def plan(change: str) -> tuple[str, str, str]:
    """Another plan of one epoch's batches."""
    changed = f'__import__("dataclasses").replace(plan, {change})'
    return LOADER, "batch_sampler=plan,", f"batch_sampler={changed} if isinstance(plan, BatchPlan) else plan,"


# --- the known ones --------------------------------------------------------------------------------------------------------

data(
    "decode", "channels_reversed", "bgr",
    method("""
    def decode(self, path):
        return Image.fromarray(np.ascontiguousarray(np.asarray(super().decode(path))[:, :, ::-1]))
"""),
)  # fmt: skip
data("normalize", "not_divided_by_255", "not_divided_by_255", (PREPROCESS, "np.float32(255)", "np.float32(1)"))
data("normalize", "wrong_mean", "mean_not_subtracted", (PREPROCESS, LEVELS, "levels / np.float32(s)"))
data(
    "normalize", "wrong_std", "one_std_for_all",
    (PREPROCESS, LEVELS, "(levels - np.float32(m)) / np.float32(s if s == 1.0 else 0.226)"),
)  # fmt: skip
data(
    "normalize", "wrong_mean_std", "mean_and_std_for_bgr",
    (PREPROCESS, "for m, s in zip(mean, std, strict=True)", "for m, s in zip(mean[::-1], std[::-1], strict=True)"),
)  # fmt: skip
data("center_crop", "crop_off_by_one", "crop_rounded_down", (PREPROCESS, "round((side - size) / 2.0)", "(side - size) // 2"))
data("resize", "interpolation", "nearest_resize", (PREPROCESS, "Resampling.BILINEAR", "Resampling.NEAREST"))
data("hflip", "flip_missing", "flip_missing", (TRANSFORMS, "picture = F.hflip(picture)", "pass"))
data("apply_op:TranslateX", "sign", "translate_other_way", (TRANSFORMS, "0.0, -int(pixels), 0.0", "0.0, int(pixels), 0.0"))
data("apply_op:Posterize", "magnitude", "posterize_too_far", (TRANSFORMS, "int(bits))", "int(bits) - 1)"))
data(
    "erase", "erase_value", "erased_before_normalising",
    (TRANSFORMS, ERASED, ERASED.replace("0.0", BLACK)),
)  # fmt: skip
data(
    "labels", "label_off_by_one", "labels_off_by_one",
    method("""
    def __getitem__(self, key):
        pixels, label, shown = super().__getitem__(key)
        return pixels, label + 1, shown
"""),
)  # fmt: skip
data(
    "sampling", "other_seed", "other_seed",
    method("""
    def __init__(self, index, preset, seed=0, *more, **named):
        super().__init__(index, preset, seed + 1, *more, **named)
"""),
)  # fmt: skip
data("order", "not_shuffled", "not_shuffled", plan("shuffle=False"))
data("order", "not_reshuffled", "epoch_never_set", plan("epoch=0"))
data(
    "batches",
    "batch_dropped",
    "last_batch_dropped",
    (LOADER, "yield from map(_sound, batches)", "yield from list(map(_sound, batches))[:-1]"),
    (LOADER, "yield from map(_sound, received)", "yield from list(map(_sound, received))[:-1]"),
)
data(
    "mix_batch:mixup", "lambda_swapped", "mixup_share_swapped",
    (MIXING, SHARES, "np.float32(1.0 - params.lam), np.float32(params.lam)"),
)  # fmt: skip
fault("distributed", 2, "ranks", "not_sharded", "every_rank_sees_everything", plan("rank=0, world_size=1"))
fault(
    "distributed", 2, "ranks", "shards_overlap", "ranks_padded",
    (LOADER, "batch_sampler=plan,", "batch_sampler=Padded(**vars(plan)) if isinstance(plan, BatchPlan) else plan,"),
    (LOADER, "class Loader:", '''class Padded(BatchPlan):
    """Every rank gets equally many batches: the first one again where one is lacking."""

    def __len__(self):
        return max(len(self.sound(rank)) for rank in range(self.world_size))

    def __iter__(self):
        own = list(self.sound(self.rank))
        return iter(own + own[:1] * (len(self) - len(own)))

    def sound(self, rank):
        return BatchPlan(**(vars(self) | {"rank": rank}))


class Loader:'''),
)  # fmt: skip

# --- transforms ------------------------------------------------------------------------------------------------------------

data("hflip", "flip_inverted", "flip_inverted", (TRANSFORMS, "if params.flip:", "if not params.flip:"))
data("hflip", "upside_down", "flipped_upside_down", (TRANSFORMS, "F.hflip(picture)", "F.vflip(picture)"))
data("hflip", "global_generator", "flip_drawn_globally", (TRANSFORMS, "if params.flip:", "if np.random.random() < 0.5:"))
data("resized_crop", "interpolation", "bicubic_training", (TRANSFORMS, '"bilinear"', '"bicubic"'))
data(
    "crop", "axes_swapped", "crop_rows_and_columns_swapped",
    (TRANSFORMS, "F.crop(image, *params.crop)", "F.crop(image, params.crop[1], params.crop[0], params.crop[3], params.crop[2])"),
)  # fmt: skip
data(
    "crop", "crop_off_by_one", "crop_one_row_down",
    (TRANSFORMS, "F.crop(image, *params.crop)", "F.crop(image, params.crop[0] + 1, *params.crop[1:])"),
)  # fmt: skip
data(
    "crop",
    "crop|box",
    "crop_left_out",
    (TRANSFORMS, CROP_AND_RESIZE, CROP_AND_RESIZE.replace("F.crop(image, *params.crop)", "image")),
)
data(
    "normalize", "mean_std_swapped", "mean_and_deviation_swapped", (PREPROCESS, LEVELS, "(levels - np.float32(s)) / np.float32(m)")
)
data("normalize", "divided_otherwise", "divided_by_256", (PREPROCESS, "np.float32(255)", "np.float32(256)"))
data(
    "normalize",
    "channels_reversed",
    "planes_reversed",
    (PREPROCESS, "cv2.split(pixels), planes", "cv2.split(pixels)[::-1], planes"),
)
data("center_crop", "crop", "crop_from_the_corner", (PREPROCESS, "round((side - size) / 2.0)", "0 * side"))
data(
    "resize",
    "target_size|interpolation_or_size",
    "longer_side_rounded_up",
    (PREPROCESS, "int(size * long / short)", "int(size * long / short) + 1"),
)
data("resize", "target_size", "aspect_ratio_lost", (PREPROCESS, "other = int(size * long / short)", "other = size"))
data("resize", "target_size|interpolation_or_size", "longer_side_to_size", (PREPROCESS, "if short == size:", "if True:"))
data("apply_op:Rotate", "sign", "rotated_other_way", (TRANSFORMS, "image.rotate(degrees,", "image.rotate(-degrees,"))
data("apply_op:ShearX", "sign", "sheared_other_way", (TRANSFORMS, "(1.0, math.tan(", "(1.0, -math.tan("))
data("apply_op:ShearY", "sign", "sheared_down_other_way", (TRANSFORMS, "0.0, math.sin(angle)", "0.0, -math.sin(angle)"))
data(
    "apply_op:Brightness",
    "sign",
    "brightness_other_way",
    (TRANSFORMS, "Brightness(image).enhance(1.0 +", "Brightness(image).enhance(1.0 -"),
)
data("apply_op:Contrast", "other_operation", "colour_for_contrast", (TRANSFORMS, "ImageEnhance.Contrast", "ImageEnhance.Color"))
data(
    "apply_op:Sharpness",
    "does_nothing",
    "sharpness_does_nothing",
    (TRANSFORMS, "Sharpness(image).enhance(1.0 + change)", "Sharpness(image).enhance(1.0)"),
)
data(
    "apply_op:Solarize",
    "magnitude",
    "solarize_threshold",
    (TRANSFORMS, "solarize(image, threshold)", "solarize(image, 255 - threshold)"),
)
data(
    "apply_op:Equalize",
    "other_operation",
    "autocontrast_for_equalize",
    (TRANSFORMS, "ImageOps.equalize(", "ImageOps.autocontrast("),
)
data(
    "apply_op:TranslateY", "sign", "translated_down_other_way", (TRANSFORMS, "0.0, 1.0, -int(pixels)))", "0.0, 1.0, int(pixels)))")
)
data(
    "erase",
    "axes_swapped",
    "erased_rows_and_columns_swapped",
    (TRANSFORMS, ERASED, "pixels[:, left : left + width, top : top + height] = 0.0"),
)
data("train_transform", "call_order", "operations_in_reverse", (TRANSFORMS, "in params.ops:", "in reversed(params.ops):"))

# --- mixing ----------------------------------------------------------------------------------------------------------------

data(
    "mix_batch:cutmix",
    "axes_swapped",
    "cutmix_rows_and_columns_swapped",
    (MIXING, REGION, "np.s_[..., left : left + width, top : top + height]"),
)
data(
    "mix_batch:mixup", "mix_partner", "mixed_with_the_next",
    (MIXING, "np.roll(images, 1, axis=0) * other", "np.roll(images, -1, axis=0) * other"),
)  # fmt: skip
data(
    "mix_batch:mixup",
    "mixed_labels",
    "labels_not_mixed",
    (MIXING, "np.roll(one_hot, 1, axis=0) * other + one_hot * own", "one_hot"),
)
