"""Start a service, post pictures to it, check its answers, and end it: ask_service.py --images DIR -- COMMAND ...

Exit status 0 where every picture got its classes, health and metrics answered, and SIGTERM ended it in good order.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    pictures = sorted(path for path in args.images.rglob("*") if path.suffix.lower() in (".jpeg", ".jpg", ".png"))
    if not pictures:
        print(f"error: {args.images} has no pictures", file=sys.stderr)
        return 2
    process = subprocess.Popen(args.command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+:\d+/", process.stdout.readline())
        if found is None:
            print("error: the service did not start", file=sys.stderr)
            return 1
        address = found[0]
        for picture in pictures:
            request = urllib.request.Request(f"{address}predict?topk=1", picture.read_bytes())
            with urllib.request.urlopen(request, timeout=30) as answer:
                (best,) = json.load(answer)["predictions"]
            print(f"{picture}: {best['name']} {100 * best['probability']:.1f} %")
        for path in ("health", "metrics"):
            with urllib.request.urlopen(address + path, timeout=30) as answer:
                assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        return process.wait(30)
    finally:
        process.kill()


if __name__ == "__main__":
    sys.exit(main())
