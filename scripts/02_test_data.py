"""Step 2 alone, data: the same files and exit status as tools/align.py --steps 2, whose other flags it takes."""

import sys

from alignment.cli import main

if __name__ == "__main__":
    sys.exit(main(["--steps", "2", *sys.argv[1:]]))
