"""Step 4 alone, loss: the same files and exit status as tools/align.py --steps 4, whose other flags it takes."""

import sys

from alignment.cli import main

if __name__ == "__main__":
    sys.exit(main(["--steps", "4", *sys.argv[1:]]))
