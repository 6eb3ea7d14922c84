"""Faults of what both sides share: no comparison of the two sees them, only one with the outside."""

from .base import IMAGE, PRESETS, SAMPLING, fault

SIZES = "        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))\n"


def shared(location: str, hint: str, name: str, file: str, old: str, new: str) -> None:
    fault("shared", 2, location, hint, name, (file, old, new))


shared("TrainPreset.crop_scale", "preset", "crop_scale_from_a_twentieth", PRESETS, "(0.08, 1.0)", "(0.05, 1.0)")
shared("EvalPreset.mean", "preset", "mean_of_another_data_set", PRESETS, "(0.485, 0.456, 0.406)", "(0.5, 0.5, 0.5)")
shared("EvalPreset.resize_size", "preset", "evaluation_resized_to_232", PRESETS, "resize_size: int = 256", "resize_size: int = 232")
shared(
    "random_resized_crop_box: crop ratio",
    "uniform_for_log",
    "uniform_aspect_ratios",
    SAMPLING,
    SIZES,
    f"        aspect = rng.uniform(*ratio)\n{SIZES}",
)
shared("random_erasing_box: erase scale", "range", "erased_up_to_two_fifths", SAMPLING, "(0.02, 0.33)", "(0.02, 0.4)")
shared("IMAGENET_POLICY[8]", "preset", "policy_of_another_probability", SAMPLING, '(("Rotate", 0.2, 3)', '(("Rotate", 0.9, 3)')
shared("auto_augment_imagenet: ShearX", "magnitude", "shear_three_times_as_far", SAMPLING, "else 10, 0.3,", "else 10, 0.9,")
shared("trivial_augment_wide: Rotate", "magnitude", "narrow_rotation", SAMPLING, "(32.0, 32.0), 135.0", "(32.0, 32.0), 30.0")
shared(
    "mix_params: box",
    "distribution",
    "box_sides_by_the_share",
    SAMPLING,
    "half = 0.5 * math.sqrt(1 - lam)",
    "half = 0.5 * (1 - lam)",
)
shared("mix_params: share", "distribution", "share_not_corrected", SAMPLING, "1 - area / (width * height), (top", "lam, (top")
shared("decode", "channels_reversed", "opencv_decodes_bgr", IMAGE, "cv2.IMREAD_COLOR_RGB", "cv2.IMREAD_COLOR")
shared(
    "crop_and_resize",
    "interpolation|interpolation_or_size",
    "opencv_nearest",
    IMAGE,
    "else cv2.INTER_LINEAR",
    "else cv2.INTER_NEAREST",
)
