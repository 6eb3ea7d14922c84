"""A service under test, with an engine that obeys a file."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import ROOT
from tests.test_serve import CAT, ask, metric


class Running:
    """A service under test.

    Attributes:
        process, port: of it.
        mood: the file that its engine obeys.
    """

    def __init__(self, folder: Path, tmp: Path, *flags: str, descriptors: int = 0) -> None:
        self.mood, self.errors = tmp / "mood", tmp / "errors"
        self.mood.write_text("")
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))) if descriptors else None
        self.process = subprocess.Popen(
            [sys.executable, "tests/moody_service.py", str(folder), str(self.mood), *flags],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=self.errors.open("w"), text=True, preexec_fn=limit,
        )  # fmt: skip
        found = re.search(r":(\d+)/", self.process.stdout.readline())
        assert found, self.errors.read_text()
        self.port = int(found[1])

    def ask(self, method="GET", path="/health", body=None, headers=None, timeout=30):
        return ask(self.port, method, path, body, headers, timeout)

    def predict(self, body=CAT, **headers):
        return self.ask("POST", "/predict", body, headers)

    def metric(self, name):
        return metric(self.port, name)

    def runs(self):
        path = Path(f"{self.mood}.runs")
        return path.read_text().splitlines() if path.exists() else []

    def family(self):
        """Numbers of its processes, its own first."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [pid, *map(int, children)]

    def memory(self):
        """Resident MiB of all its processes."""
        found = 0
        for pid in self.family():
            with contextlib.suppress(OSError):
                size = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
                found += int(size[1]) if size else 0
        return found / 1024

    def end(self):
        """SIGTERM; gives the seconds it took, and leaves no process behind."""
        family, start = self.family(), time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
        seconds = time.perf_counter() - start
        time.sleep(0.2)
        left = [pid for pid in family[1:] if Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text()]
        assert not left
        return seconds
