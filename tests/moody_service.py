"""The service with an engine that obeys a file: python tests/moody_service.py MODEL_DIR FILE [FLAGS]

FILE holds "slow" (0.7 s a run), "hang" (for ever) or "fail"; each run of the engine is noted in FILE.runs. All else is
tools/serve.py's own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mnv3 import serve  # noqa: E402


class Moody:
    def __init__(self, engine, file):
        self.engine, self.file, self.name, self.version = engine, file, engine.name, engine.version

    def __call__(self, images):
        mood = self.file.read_text().strip()
        with open(f"{self.file}.runs", "a") as runs:
            runs.write(f"{mood or 'well'} {len(images)}\n")
        if mood == "hang":
            time.sleep(10_000)
        if mood == "fail":
            raise ValueError("out of order")
        if mood == "slow":
            time.sleep(0.7)
        return self.engine(images)


if __name__ == "__main__":
    folder, control, *flags = sys.argv[1:]
    make = serve.create_engine
    serve.create_engine = lambda *args, **options: Moody(make(*args, **options), Path(control))
    serve.worker_command = lambda argv: [sys.executable, *sys.argv]
    sys.exit(serve.main(["--model-dir", folder, "--port", "0", *flags]))
