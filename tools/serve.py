"""Serve an exported model over HTTP: python tools/serve.py --model-dir exported

POST a picture to /predict (its bytes, or a form with a file); /health, /metrics (Prometheus); / is a page for people.
SIGTERM and Ctrl-C take no new requests, answer those under way, and end.
"""

from __future__ import annotations

import signal
import socket
import sys

from mobilenetv3_common.config_file import Parser
from mobilenetv3_common.errors import UserError, exit_on_user_error
from mobilenetv3_paddle.deploy.engines import cpu_threads, create_engine
from mobilenetv3_paddle.deploy.flags import add_engine_flags, add_picture_flags, rules_of


def parser() -> Parser:
    p = Parser(description=__doc__)
    add_engine_flags(p)
    add_picture_flags(p)
    p.add_argument("--decoders", type=int, default=0, metavar="N", help="threads that decode pictures (default: one a core)")
    p.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    p.add_argument("--port", type=int, default=8000, metavar="N", help="(default: 8000; 0 for any free one)")
    p.add_argument("--max-batch", type=int, default=32, metavar="N", help="pictures in a run of the engine (default: 32)")
    p.add_argument("--max-queue", type=int, default=256, metavar="N", help="requests under way; one more gets 503 (default: 256)")
    p.add_argument("--max-upload", type=float, default=10.0, metavar="MIB", help="size of a picture's file (default: 10)")
    p.add_argument("--max-pixels", type=float, default=50.0, metavar="MILLION", help="size of a picture (default: 50)")
    p.add_argument("--timeout", type=float, default=10.0, metavar="S", help="a picture's wait, and a client's upload (default: 10)")
    p.add_argument("--shutdown", type=float, default=30.0, metavar="S", help="given to requests under way at the end (default: 30)")
    return p


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if min(args.max_batch, args.max_queue, args.max_upload, args.max_pixels, args.timeout, args.shutdown) <= 0:
        raise UserError("--max-batch, --max-queue, --max-upload, --max-pixels, --timeout and --shutdown must be above 0")
    if args.threads < 0 or args.decoders < 0 or not 0 <= args.port <= 65535:
        raise UserError("--threads and --decoders must be 0 or more, --port 0 to 65535")
    try:
        import uvicorn

        from mobilenetv3_paddle.deploy.serving.app import Limits, create_app
    except ImportError as error:
        raise UserError(f"the service needs the package {error.name}: pip install '.[deploy]'") from error
    from mobilenetv3_paddle.deploy.bundle import read_bundle
    from mobilenetv3_paddle.deploy.predictor import Predictor

    bundle = read_bundle(args.model_dir)
    engine = create_engine(bundle, args.engine, args.precision, args.threads, args.device, spin=False)
    predictor = Predictor(engine, bundle.preset, bundle.classes, bundle.image_backend, rules_of(args))
    limits = Limits(
        int(args.max_upload * 2**20), int(args.max_pixels * 1e6), args.max_queue, args.timeout, args.timeout, args.max_batch
    )
    app = create_app(predictor, bundle.model, limits, args.decoders or cpu_threads())
    config = uvicorn.Config(
        app, args.host, args.port, log_level="warning", access_log=False, timeout_graceful_shutdown=int(args.shutdown),
        timeout_keep_alive=30, backlog=4096,
    )  # fmt: skip
    sock = listening(args.host, args.port)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(f"{bundle.model} on {engine.name}, http://{args.host}:{sock.getsockname()[1]}/", flush=True)  # it answers now

    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again when it has ended in good order
        signal.signal(number, lambda *_: None)
    Server(config).run(sockets=[sock])
    return 0


def listening(host: str, port: int) -> socket.socket:
    """The socket to listen on.

    Raises:
        UserError: the address is taken, or is not this machine's.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        return sock
    except OSError as error:
        raise UserError(f"cannot listen on {host} port {port}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
