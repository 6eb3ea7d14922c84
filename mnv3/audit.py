"""Find the mistakes of any port: mnv3 audit --help. The same as python -m alignment audit."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from alignment import cli
from mobilenetv3_common.errors import exit_on_user_error


@exit_on_user_error
def main(argv: Sequence[str] | None = None) -> int:
    """Audit two models."""
    return cli.audit(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
