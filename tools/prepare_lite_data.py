"""Make lite_data: 16 training and 16 validation photographs in 8 classes, in ImageNet layout and with list files.

The photographs are crops of sample pictures that scikit-image, scikit-learn and matplotlib install, so nothing is
downloaded. manifest.json holds the SHA-256 of every file and the source and licence of every picture. The repository
holds the result; ``--check`` verifies it, and running without it makes the pictures anew.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the code of this folder, wherever another is installed

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import atomic_open, ensure_writable_dir, sha256_of

DEFAULT_DIR = Path(__file__).resolve().parents[1] / "lite_data"
PUBLIC_DOMAIN, CC0, CC_BY_2 = "public domain", "CC0 1.0", "CC BY 2.0 (https://creativecommons.org/licenses/by/2.0/)"
# class -> (package, file inside it, author, licence)
PHOTOGRAPHS = {
    "astronaut": ("skimage", "data/astronaut.png", "NASA, portrait of Eileen Collins", PUBLIC_DOMAIN),
    "cat": ("skimage", "data/chelsea.png", "Stefan van der Walt, Chelsea the cat", CC0),
    "coffee": ("skimage", "data/coffee.png", "Rachel Michetti, a cup of coffee", CC0),
    "flower": ("sklearn", "datasets/images/flower.jpg", "vultilion on Flickr, photo 6056698931", CC_BY_2),
    "galaxies": ("skimage", "data/hubble_deep_field.jpg", "NASA/ESA, Hubble eXtreme Deep Field", PUBLIC_DOMAIN),
    "officer": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg", "US Navy, portrait of Grace Hopper", PUBLIC_DOMAIN),
    "palace": ("sklearn", "datasets/images/china.jpg", "danielbuechele on Flickr, photo 6061409035", CC_BY_2),
    "rocket": ("skimage", "data/rocket.jpg", "SpaceX, launch of Falcon 9 with DSCOVR", CC0),
}
# Crops as shares of the photograph: left, top, right, bottom. Sizes and shapes differ, so that resizing and centre
# cropping meet odd remainders.
CROPS = {
    "train": ((0.0, 0.0, 0.80, 0.85), (0.18, 0.12, 1.0, 1.0)),
    "val": ((0.17, 0.0, 1.0, 0.83), (0.0, 0.14, 0.83, 1.0)),
}
LONGEST_SIDE = 400


def crop_photograph(photograph: Image.Image, box: tuple[float, float, float, float]) -> Image.Image:
    """Cut a share out of a photograph and shrink it to at most LONGEST_SIDE, at least 224 pixels a side."""
    width, height = photograph.size
    cut = photograph.crop((round(box[0] * width), round(box[1] * height), round(box[2] * width), round(box[3] * height)))
    scale = max(min(1.0, LONGEST_SIDE / max(cut.size)), 225 / min(cut.size))
    size = (round(cut.width * scale), round(cut.height * scale))
    return cut if size == cut.size else cut.resize(size, Image.Resampling.LANCZOS)


def find_photograph(package: str, file: str) -> Path:
    spec = importlib.util.find_spec(package)
    path = Path(spec.origin).parent / file if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        raise UserError(f"{package} does not provide {file}: install the extra 'dev' of this project")
    return path


def make(directory: Path) -> None:
    """Write pictures, list files and the manifest."""
    ensure_writable_dir(directory)
    pictures = []
    lists: dict[str, list[str]] = {split: [] for split in CROPS}
    for label, (name, (package, file, author, licence)) in enumerate(PHOTOGRAPHS.items()):
        with Image.open(find_photograph(package, file)) as opened:
            photograph = opened.convert("RGB")
        for split, boxes in CROPS.items():
            for number, box in enumerate(boxes):
                relative = f"{split}/{name}/{name}_{number}.JPEG"
                target = directory / relative
                target.parent.mkdir(parents=True, exist_ok=True)
                picture = crop_photograph(photograph, box)
                with atomic_open(target) as out:
                    picture.save(out, "JPEG", quality=90)
                lists[split].append(f"{relative} {label}")
                pictures.append(
                    {
                        "file": relative,
                        "label": label,
                        "width": picture.width,
                        "height": picture.height,
                        "sha256": sha256_of(target),
                        "source": f"{package}: {file}",
                        "crop": box,
                        "author": author,
                        "licence": licence,
                    }
                )
    files = {}
    for split, lines in lists.items():
        with atomic_open(directory / f"{split}_list.txt", "w") as out:
            out.write("\n".join(lines) + "\n")
        files[f"{split}_list.txt"] = sha256_of(directory / f"{split}_list.txt")
    with atomic_open(directory / "classes.txt", "w") as out:
        out.write("\n".join(PHOTOGRAPHS) + "\n")
    files["classes.txt"] = sha256_of(directory / "classes.txt")
    with atomic_open(directory / "manifest.json", "w") as out:
        json.dump({"pictures": pictures, "lists": files}, out, indent=1)
        out.write("\n")


def check(directory: Path) -> int:
    """Compare every file with the manifest; returns the number of pictures.

    Raises:
        UserError: the manifest is missing, or a file is missing or differs.
    """
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        wanted = {row["file"]: row["sha256"] for row in manifest["pictures"]} | manifest["lists"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read {directory / 'manifest.json'} ({error}): run tools/prepare_lite_data.py") from error
    for name, digest in wanted.items():
        path = directory / name
        if not path.is_file():
            raise UserError(f"{path} is missing: run tools/prepare_lite_data.py")
        if sha256_of(path) != digest:
            raise UserError(f"{path} differs from its SHA-256 in manifest.json: run tools/prepare_lite_data.py")
    return len(manifest["pictures"])


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, default=DEFAULT_DIR, help="where to write (default: lite_data)")
    parser.add_argument("--check", action="store_true", help="only verify the files against manifest.json")
    args = parser.parse_args(argv)
    if not args.check:
        make(args.output_dir)
    print(f"lite_data: {check(args.output_dir)} pictures match their SHA-256 in manifest.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
