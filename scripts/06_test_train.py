"""Step 6 alone, train: the same files and exit status as tools/align.py --steps 6, whose other flags it takes."""

import sys

from alignment.cli import main

if __name__ == "__main__":
    sys.exit(main(["--steps", "6", *sys.argv[1:]]))
