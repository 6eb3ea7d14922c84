"""Write scikit-learn's handwritten digits as ImageNet folders, to train on in minutes: see configs/digits.yaml."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the code of this folder, wherever another is installed

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import exit_on_user_error


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("output_dir", help="gets train/ and val/")
    args = parser.parse_args(argv)
    from mobilenetv3_common.dataset_index import index_dataset
    from mobilenetv3_common.digits import write_digits

    root = write_digits(args.output_dir)
    train, val = (len(index_dataset(root, split)) for split in ("train", "val"))
    print(f"{root}: {train} training and {val} validation pictures of 10 digits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
