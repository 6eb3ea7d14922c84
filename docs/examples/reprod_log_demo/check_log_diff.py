"""Section 2 of the guide, second half: the two records compared, printed and written as ``ReprodDiffHelper.report`` does.

python docs/examples/reprod_log_demo/check_log_diff.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from alignment.record import load_record
from alignment.report.diff_log import compared
from mobilenetv3_common.errors import exit_on_user_error

THRESHOLD = 1e-6  # of the mean absolute difference, as reprod_log has it by default


@exit_on_user_error
def main(folder: Path = Path("result_demo")) -> int:
    """0 where all arrays agree; the demonstration's do not."""
    first, second = (load_record(folder / f"reprod_log_{number}.npy") for number in (1, 2))
    text, passed = compared(first, second, THRESHOLD)
    (folder / "diff.log").write_text(text, encoding="utf-8")
    print(text, end="")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:2])))
