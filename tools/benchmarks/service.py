"""The service beside tools/infer.py, by their commands."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mobilenetv3_common.errors import UserError
from tools.benchmarks.models import ROOT, calibrated
from tools.benchmarks.turns import print_table, side_by_side

LOAD = """
local requests, sent = {}, 0
function init()
  for path in io.lines("PATHS") do
    local file = io.open(path, "rb")
    requests[#requests + 1] = wrk.format("POST", "/predict", nil, file:read("*a"))
    file:close()
  end
end
function request()
  sent = sent % #requests + 1
  return requests[sent]
end
"""


def _cases(folder: Path, args: Any) -> dict[str, dict[str, Callable[[], float]]]:
    """Pictures a second of the service and of tools/infer.py, by the threads of the engine."""
    wrk = shutil.which("wrk")
    if wrk is None:
        raise UserError("service: needs wrk, which sends the requests: apt install wrk")
    from mobilenetv3_paddle.deploy.export import export
    from mobilenetv3_paddle.deploy.predictor import find_pictures
    from mobilenetv3_paddle.deploy.trained import load_trained

    exported, pictures = folder / "exported", ROOT / "lite_data" / "val"
    export(load_trained(args.pretrained or calibrated(folder, args.model)), exported)
    (folder / "paths").write_text("".join(f"{path}\n" for path in find_pictures([pictures])))
    (folder / "load.lua").write_text(LOAD.replace("PATHS", str(folder / "paths")))

    def load(port: str, seconds: int) -> float:
        command = [wrk, "-t1", "-c32", f"-d{seconds}s", "-s", str(folder / "load.lua"), f"http://127.0.0.1:{port}/"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.search(r"Requests/sec: +([0-9.]+)", said)
        if found is None or "Non-2xx" in said or "Socket errors" in said:
            raise RuntimeError(f"the service did not answer every request:\n{said}")
        return float(found[1])

    def measured_service(threads: int) -> float:
        command = [sys.executable, "tools/serve.py", "--model-dir", str(exported), "--port", "0", "--threads", str(threads)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                port = process.stdout.readline().rstrip("/\n").rpartition(":")[2]
                load(port, 1)
                return load(port, args.seconds)
            finally:
                process.terminate()

    def infer(threads: int, batch: int) -> float:
        command = [sys.executable, "tools/infer.py", "--model-dir", str(exported), "--img-path", str(pictures), "--benchmark"]
        command += ["--threads", str(threads), "--batch-size", str(batch), "--warmup", "3", "--repeats", "40"]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = re.search(r"pictures/s *: ([0-9.]+)", said)
        assert found is not None, said
        return float(found[1])

    cases: dict[str, dict[str, Callable[[], float]]] = {}
    for threads in sorted({args.threads} if args.threads else {1, len(os.sched_getaffinity(0))}):
        words = f"{threads} engine thread{'s' * (threads > 1)}"
        cases[words] = {f"service, {words}": functools.partial(measured_service, threads)}
        for batch in (1, 8):
            cases[words][f"infer.py, batch {batch}, {words}"] = functools.partial(infer, threads, batch)
    return cases


def service(folder: Path, args: Any) -> dict[str, list[float]]:
    """Pictures a second of the service and of tools/infer.py, by their commands; a table for each number of threads."""
    cases = _cases(folder, args)
    found = side_by_side({name: case for group in cases.values() for name, case in group.items()}, args.repeats)
    for number, (words, group) in enumerate(cases.items()):
        print(end="\n" * bool(number))
        print_table({name: found[name] for name in group}, "pictures/s", f"infer.py, batch 1, {words}")
    return found
