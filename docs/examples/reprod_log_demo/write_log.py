"""Section 2 of the guide, first half: two records of random matrices, of which one matrix differs.

python docs/examples/reprod_log_demo/write_log.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from alignment.record import save_record


def main(folder: Path = Path("result_demo")) -> None:
    """Write ``reprod_log_1.npy`` and ``reprod_log_2.npy``, which reprod_log's own ``ReprodDiffHelper`` reads as well."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    same, first, second = (rng.random((3, 4), dtype=np.float32) for _ in range(3))
    for number, other in enumerate((first, second), start=1):
        save_record(folder / f"reprod_log_{number}.npy", {"demo_test_1": same, "demo_test_2": other})
        print(f"{folder}/reprod_log_{number}.npy")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
