"""Step 4 alone, loss: the same files and exit status as tools/align.py --steps 4, whose other flags it takes.

result/ keeps the other steps' results (``--keep``), so that the six scripts leave all six.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.align import main

if __name__ == "__main__":
    sys.exit(main(["--keep", "--steps", "4", *sys.argv[1:]]))
