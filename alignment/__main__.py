"""python -m alignment"""

import sys

from alignment.cli import main

if __name__ == "__main__":
    sys.exit(main())
