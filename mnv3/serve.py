"""Serve an exported model over HTTP: python tools/serve.py --model-dir exported

POST a picture to /predict (its bytes, or a form with a file); /health, /health/live, /health/ready, /metrics (Prometheus);
/ is a page for people. SIGTERM, SIGHUP and Ctrl-C take no new requests, answer those under way, and end.
"""

from __future__ import annotations

import functools
import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import mobilenetv3_common.quiet_ctrl_c  # noqa: F401
from mobilenetv3_common.config_file import Parser, within
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_common.files import refuse_special
from mobilenetv3_common.streams import keep_open, leave, put, tell
from mobilenetv3_paddle.deploy.engines import Engine, cpu_threads, create_engine
from mobilenetv3_paddle.deploy.flags import add_engine_flags, add_picture_flags, positive, rules_of

LOOPBACK = ("127.0.0.1", "localhost", "::1")
Number = positive(float)
Count = positive(int)
LIMITS = (
    ("--timeout", Number, 10.0, "S", "seconds of a whole request"),
    ("--max-batch", Count, 32, "N", "pictures in a run of the engine"),
    ("--max-queue", Count, 256, "N", "requests under way; one more: 503"),
    ("--max-per-client", Count, 64, "N", "of one address; one more: 429"),
    ("--max-connections", Count, 1000, "N", "open at a time"),
    ("--max-upload", Number, 10.0, "MIB", "size of a picture's file"),
    ("--max-uploads", Number, 200.0, "MIB", "of all under way"),
    ("--max-pixels", Number, 50.0, "MILLION", "size of a picture"),
    ("--shutdown", Number, 30.0, "S", "for open requests at shutdown"),
)


def parser() -> Parser:
    p = Parser(description=__doc__)
    add_engine_flags(p, "; while pictures are decoded at most half of the cores")
    add_picture_flags(p)
    p.add_argument(
        "--decoders", type=within(0), default=0, metavar="N", help="decoding processes (default: one a core, at least 2)"
    )
    workers = "processes that serve; the limits are of each (default: 1)"
    p.add_argument("--workers", type=Count, default=1, metavar="N", help=workers)
    p.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    p.add_argument("--port", type=within(0, 65535), default=8000, metavar="N", help="(default: 8000; 0 for any free one)")
    limits = p.add_argument_group("limits")
    for flag, kind, default, metavar, words in LIMITS:
        limits.add_argument(flag, type=kind, default=default, metavar=metavar, help=f"{words} (default: {default:g})")
    who = p.add_argument_group("who may ask")
    who.add_argument("--token-file", type=Path, metavar="FILE", help="requests must carry its content as Authorization: Bearer")
    who.add_argument("--allowed-hosts", nargs="+", default=[], metavar="NAME", help="Host headers that are answered (default: any)")
    trusted = "proxies whose X-Forwarded-For is trusted (default: none)"
    who.add_argument("--trusted-proxies", nargs="+", default=[], metavar="ADDRESS", help=trusted)
    who.add_argument("--access-log", metavar="FILE", help="append a line of JSON for each answer; - for standard output")
    return p


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    keep_open()
    args = parser().parse_args(argv)
    try:
        from mobilenetv3_paddle.deploy.serving.app import Access, create_app
        from mobilenetv3_paddle.deploy.serving.server import Place, Server, connection_limit, listening, serve, supervise
        from mobilenetv3_paddle.deploy.serving.service import Limits
    except ImportError as error:
        raise UserError(f"the service needs the package {error.name}: pip install '.[deploy]'") from error
    from mobilenetv3_paddle.deploy.bundle import read_bundle
    from mobilenetv3_paddle.deploy.predictor import Predictor

    place, cores = Place.mine(), max(1, cpu_threads() // args.workers)
    hosts = tuple(name.lower() for name in args.allowed_hosts)
    access = Access(token(args.token_file), hosts, args.max_per_client, log(args))
    bundle = read_bundle(args.model_dir)
    decoders, threads, sparing = args.decoders or max(2, cores), args.threads or cores, max(1, cores // 2)

    def engine(threads: int) -> Engine:
        return create_engine(bundle, args.engine, args.precision, threads, args.device)

    predictor = Predictor(engine(threads), bundle.preset, bundle.classes, bundle.image_backend, rules_of(args))
    limits = Limits(
        int(args.max_upload * 2**20), int(args.max_uploads * 2**20), int(args.max_pixels * 1e6), args.max_queue, args.timeout,
        args.max_batch,
    )  # fmt: skip
    sock = place.sock if place else listening(args.host, args.port)
    if place is None and args.host not in LOOPBACK and not access.token:
        tell(f"warning: --host {args.host} lets everyone who reaches this machine ask: give --token-file")
    where = f"{bundle.model} on {predictor.engine.name}, http://{args.host}:{sock.getsockname()[1]}/"
    if args.workers > 1 and place is None:
        line = f"{where} with {args.workers} workers"
        supervise(worker_command(argv), args.workers, sock, args.shutdown, lambda: tell(line, error=False))
        leave()
    identity = {"model": bundle.model, "weights_sha256": bundle.weights_sha256}
    beside_decoders = engine(sparing) if threads > sparing and args.device == "cpu" else None
    app, service = create_app(predictor, identity, limits, decoders, access, place, beside_decoders)
    connections = connection_limit(args.max_connections, decoders)

    def started() -> None:
        if place is None:
            tell(where, error=False)

    def look() -> None:
        if place is not None:
            place.look(service.batcher.hung, service.metrics.registry)

    def stopping() -> None:
        service.stopping = True

    told = started, look, stopping
    serve(Server(app, sock, connections, args.timeout, args.shutdown, *told, args.trusted_proxies), sock)


def worker_command(argv: list[str] | None) -> list[str]:
    """What each worker runs: the same command, which finds its place in its environment."""
    return [sys.executable, "-m", "mnv3.serve", *(sys.argv[1:] if argv is None else argv)]


def token(path: Path | None) -> str:
    """The token that a file holds; empty without a file.

    Raises:
        UserError: it cannot be read, or holds no token of 16 characters or more.
    """
    if path is None:
        return ""
    refuse_special(path)
    try:
        found = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read --token-file {path}: {getattr(error, 'strerror', None) or 'it is not ASCII'}") from error
    if len(found) < 16 or len(found.split()) != 1:
        raise UserError(f"--token-file {path} must hold one word of at least 16 characters")
    return found


def log(args: Namespace) -> Callable[[str], None] | None:
    """What writes the access log; None without one."""
    if args.access_log is None:
        return None
    try:
        file = 1 if args.access_log == "-" else os.open(args.access_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"cannot write --access-log {args.access_log}: {error.strerror}") from error

    return functools.partial(put, file)  # a full disk, a reader that has gone or stands still, costs lines and no answers


if __name__ == "__main__":
    sys.exit(main())
