"""Class folders or list files to tar shards: python tools/make_shards.py --data-path DIR --output-dir DIR

The shards are in WebDataset's form (KEY.jpg, KEY.cls with the class number), in the order of the folder or list: training on
them sees the same pictures in the same order, bit for bit, and can go on where a run on the folder was stopped.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the code of this folder, wherever another is installed

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.dataset_index import index_dataset, index_splits
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.shard_writer import present_splits, write_shards


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = Parser(description=__doc__)
    parser.add_argument("--data-path", required=True, metavar="DIR", help="ImageNet layout or list files; its splits are converted")
    parser.add_argument("--output-dir", required=True, metavar="DIR", help="SPLIT-NNNNNN.tar and classes.txt go here")
    parser.add_argument("--shard-mb", type=int, default=256, metavar="N", help="largest shard in MB, 1 or more (default: 256)")
    args = parser.parse_args(argv)
    if args.shard_mb < 1:
        raise UserError(f"--shard-mb must be at least 1, found {args.shard_mb}")
    root = Path(args.data_path)
    splits = present_splits(root) or ["train"]
    if len(splits) == 2:
        indices = dict(zip(splits, index_splits(root, match="subset"), strict=True))
    else:
        indices = {split: index_dataset(root, split) for split in splits}
    for index in indices.values():
        for line in index.notes():
            print(f"note: {line}", file=sys.stderr)
    counts = write_shards(indices, Path(args.output_dir), args.shard_mb * 10**6, lambda line: print(line, flush=True))
    said = [f"{len(indices[split])} {split} pictures in {count} shard{'s' * (count > 1)}" for split, count in counts.items()]
    print(f"{' and '.join(said)} in {args.output_dir}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
