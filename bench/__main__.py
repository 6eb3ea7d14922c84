"""``python -m bench PROJECT``"""

import sys

from bench.cli import bench

if __name__ == "__main__":
    sys.exit(bench(sys.argv[1:]))
