"""Names of classes: ImageNet's, a file's, or the numbers."""

from __future__ import annotations

from pathlib import Path

from mobilenetv3_common.errors import UserError

IMAGENET_FILE = Path(__file__).with_name("imagenet_classes.txt")


def class_names(num_classes: int, path: str | Path | None = None) -> tuple[str, ...]:
    """A name for each class.

    Args:
        num_classes: of the model.
        path: text file with one name a line; by default ImageNet's names where there are 1000 classes, else the numbers.

    Raises:
        UserError: the file cannot be read, or has another number of names.
    """
    if path is None and num_classes != 1000:
        return tuple(str(number) for number in range(num_classes))
    path = Path(path or IMAGENET_FILE)
    try:
        names = tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read class names {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(names) != num_classes:
        raise UserError(f"{path} has {len(names)} class names, but the model has {num_classes} classes")
    return names
