"""Step 5 alone, backward: the same files and exit status as tools/align.py --steps 5, whose other flags it takes."""

import sys

from alignment.cli import main

if __name__ == "__main__":
    sys.exit(main(["--steps", "5", *sys.argv[1:]]))
