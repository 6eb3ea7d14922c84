"""``make serve``: the service behind nginx with ``nginx.conf`` of this folder, both on this machine's loopback, until Ctrl-C."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from pathlib import Path
from types import FrameType

from mobilenetv3_common.errors import UserError, exit_on_user_error

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 40.0  # seconds that requests under way have at the end: the service's own limit (--shutdown) is 30


class Ended(Exception):
    """SIGINT or SIGTERM has come."""


def nginx_program() -> str:
    """nginx of the system, or the one that ``make service-tools`` unpacked.

    Raises:
        UserError: there is neither.
    """
    unpacked = ROOT / ".cache" / "tools" / "usr" / "sbin"
    found = shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", str(unpacked)]))
    if found is None:
        raise UserError("nginx is missing: make service-tools unpacks it (Debian, Ubuntu), or install it")
    return found


def configuration(text: str, port: int, service: int, folder: Path) -> str:
    """``nginx.conf`` on loopback, with its port, that of the service, and its files in a folder.

    Raises:
        UserError: the text lacks one of the places that are changed.
    """
    changes = {
        "listen 8080;": f"listen 127.0.0.1:{port};",
        "server 127.0.0.1:8000 ": f"server 127.0.0.1:{service} ",
        "/tmp/": f"{folder}/",
    }
    for before, after in changes.items():
        if before not in text:
            raise UserError(f"deploy/nginx.conf lacks {before.strip()!r}: make serve changes it")
        text = text.replace(before, after)
    return text


def start_service(model_dir: str, options: list[str]) -> tuple[subprocess.Popen[str], int]:
    """The service on a free port of loopback.

    Returns:
        Its process, which is in a session of its own: Ctrl-C reaches it through this program; and its port.

    Raises:
        UserError: it ended; it has said why.
    """
    command = [
        sys.executable,
        str(ROOT / "tools" / "serve.py"),
        "--model-dir",
        model_dir,
        "--port",
        "0",
        "--trusted-proxies",
        "127.0.0.1",
    ]
    service = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert service.stdout is not None
    try:
        found = re.search(r"http://[^ ]*:(\d+)/", service.stdout.readline())
    except BaseException:
        stop(service, signal.SIGTERM)
        raise
    if found is None:
        stop(service, signal.SIGTERM)
        raise UserError("the service did not start")
    return service, int(found[1])


def wait_for(nginx: subprocess.Popen[bytes], port: int) -> None:
    """Until nginx takes connections.

    Raises:
        UserError: it ended; it has said why.
    """
    while True:
        if nginx.poll() is not None:
            raise UserError(f"nginx ended with status {nginx.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


def stop(process: subprocess.Popen[str] | subprocess.Popen[bytes] | None, by: signal.Signals) -> None:
    """End a process, by SIGKILL where it takes longer than ``LIMIT``."""
    if process is None or process.poll() is not None:
        return
    process.send_signal(by)
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def on_signal(number: int, frame: FrameType | None) -> None:
    """One signal ends it; others on the way do not cut that short."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    raise Ended


def parser() -> ArgumentParser:
    p = ArgumentParser(description=__doc__, epilog="Other options go to tools/serve.py, for example --workers 2.")
    p.add_argument("--model-dir", required=True, metavar="DIR", help="folder that tools/export_model.py wrote")
    p.add_argument("--port", type=int, default=8080, metavar="N", help="nginx's port on 127.0.0.1 (default: 8080)")
    return p


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    args, options = parser().parse_known_args(argv)
    if not 1 <= args.port <= 65535:
        raise UserError("--port must be 1 to 65535")
    program = nginx_program()
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind(("127.0.0.1", args.port))
        except OSError as error:
            raise UserError(
                f"port {args.port} of 127.0.0.1: {error.strerror}: another is given by --port (make serve PORT=N)"
            ) from error
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, on_signal)
    service = nginx = None
    with tempfile.TemporaryDirectory(prefix="mobilenetv3-front-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # root's nginx works as another user
        try:
            service, port = start_service(args.model_dir, options)
            conf = folder / "nginx.conf"
            conf.write_text(configuration((ROOT / "deploy" / "nginx.conf").read_text(), args.port, port, folder))
            nginx = subprocess.Popen([program, "-p", str(folder), "-c", str(conf)], start_new_session=True)
            wait_for(nginx, args.port)
            print(f"http://127.0.0.1:{args.port}/ by nginx, before the service on port {port}", flush=True)
            while service.poll() is None and nginx.poll() is None:
                time.sleep(0.2)
            raise UserError("the service ended" if nginx.poll() is None else f"nginx ended with status {nginx.returncode}")
        except Ended:
            return 0
        finally:
            stop(nginx, signal.SIGQUIT)  # which answers what is under way
            stop(service, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
