"""Hundreds of files that are damaged or ask for too much, drawn with a seed, and a process that reads each in a child of its own.

    python -m tests.hostile_files 500 0

makes 500 of them with seed 0, gives each to a command of a user in turn (its ``main``), in a child of its own, and prints one JSON
line a file: its name, the command, the exit status, seconds, peak memory in MiB, and what was said. Of each kind some are edits of
a sound file (bits, pieces, lengths), and some are made to take memory or time.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import os
import pickle
import random
import resource
import signal
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

STATE = {
    "features.0.0.weight": np.random.default_rng(0).normal(size=(16, 3, 3, 3)).astype(np.float32),
    "features.0.1.running_mean": np.zeros(16, np.float32),
    "classifier.3.weight": np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32),
    "classifier.3.bias": np.arange(8, dtype=np.float32),
}


@functools.cache
def weights() -> dict[str, np.ndarray]:
    """Those of a network, so that a command that reads them goes on to its work."""
    import torch

    from mobilenetv3_ref.models import mobilenet_v3_small

    torch.manual_seed(0)
    state = mobilenet_v3_small(num_classes=8, width_mult=0.25).state_dict()
    return {name: tensor.numpy() for name, tensor in state.items()}


LIMIT_SECONDS, LIMIT_MIB = 20, 1024
HUGE = (1 << 31, (1 << 31) - 1, (1 << 32) - 1, 1 << 33, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, (1 << 64) - 1)
NAMES = ("\x1b[2Jx", "\x1b]0;t\x07", "a\u202eb", "x\ny", "x\ry", "\x9b31m", "\u2066a")


# --- sound files ---------------------------------------------------------------------------------------------------------------


def pdparams() -> bytes:
    return pickle.dumps(weights(), 4)


def torch_file(legacy: bool = False) -> bytes:
    import torch

    buffer = io.BytesIO()
    state = {"state_dict": {name: torch.tensor(array) for name, array in weights().items()}, "epoch": 3}
    torch.save(state, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def safetensors_file() -> bytes:
    from safetensors.numpy import save

    return save(weights())


def ckpt() -> bytes:
    from mobilenetv3_common.mindspore_checkpoint import write_ckpt

    with tempfile.TemporaryDirectory() as folder:
        write_ckpt(Path(folder) / "x.ckpt", weights())
        return (Path(folder) / "x.ckpt").read_bytes()


def npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array(STATE, dtype=object), allow_pickle=True)
    return buffer.getvalue()


def npz(deflated: bool = False) -> bytes:
    buffer = io.BytesIO()
    (np.savez_compressed if deflated else np.savez)(buffer, allow_pickle=False, **STATE)
    return buffer.getvalue()


def tar(form: int = tarfile.PAX_FORMAT, label: bytes = b"1", odd: str = "a") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for number in range(4):
            for extension, data in (("jpg", b"picture" * 90), ("cls", label)):
                member = tarfile.TarInfo(f"{odd}{number}.{extension}")
                member.size, member.mtime = len(data), 1700000000.5  # type: ignore[assignment]  # as webdataset writes it
                archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


YAML = b"model: mobilenet_v3_small\nnum_classes: 8\nlr: 0.1\nepochs: 3  # few\nbatch_size: 32\n"
MAP = b'"features.0": "backbone.0"\nclassifier: head\ntensors:\n- port: [q, k]\n  reference: qk\n  groups: 2\n'

SOUND: dict[str, tuple[str, Callable[[], bytes]]] = {
    "pdparams": (".pdparams", pdparams),
    "pth": (".pth", torch_file),
    "old pth": (".pth", lambda: torch_file(True)),
    "safetensors": (".safetensors", safetensors_file),
    "ckpt": (".ckpt", ckpt),
    "npy": (".npy", npy),
    "npz": (".npz", npz),
    "packed npz": (".npz", lambda: npz(True)),
    "tar": (".tar", tar),
    "yaml": (".yaml", lambda: YAML),
    "map": (".map.yaml", lambda: MAP),
}


# --- edits of them -------------------------------------------------------------------------------------------------------------


def edited(content: bytes, draw: random.Random) -> bytes:
    """A sound file with one to three things done to it."""
    data = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        place = draw.choice((draw.randrange(len(data) + 1), draw.randrange(min(len(data), 600) + 1)))
        what = draw.randrange(8)
        if what == 0:
            for _ in range(draw.randint(1, 8)):
                data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        elif what == 1:
            del data[place:]
        elif what == 2:
            data[place:place] = draw.randbytes(draw.randint(1, 64))
        elif what == 3:
            data[place : place + 8] = struct.pack(draw.choice("<>") + "Q", draw.choice(HUGE))
        elif what == 4:
            data[place : place + 4] = struct.pack(draw.choice("<>") + "I", draw.choice(HUGE) & 0xFFFFFFFF)
        elif what == 5:
            data[place : place + draw.randint(1, 64)] = bytes([draw.choice((0, 255, 0x5B, 0x28))]) * draw.randint(1, 64)
        elif what == 6:
            del data[place : place + draw.randint(1, 600)]
        else:
            start = draw.randrange(len(data) + 1)
            data[place:place] = data[start : start + draw.randint(1, 700)]
        if not data:
            data = bytearray(b"\0")
    return bytes(data)


# --- files that ask for much ---------------------------------------------------------------------------------------------------


def _u(value: int, width: int) -> bytes:
    return (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")


def pickle_bomb(draw: random.Random) -> bytes:
    huge, text = draw.choice(HUGE), draw.choice(NAMES).encode()
    one = b"X" + _u(len(text), 4) + text
    return draw.choice(
        (
            b"\x80\x04}r" + _u(huge, 4) + b".",
            b"\x80\x04" + draw.choice((b"\x8d", b"\x8e", b"\x95")) + _u(huge, 8) + b".",
            b"\x80\x05\x96" + _u(huge, 8) + b".",
            b"\x80\x02" + draw.choice((b"X", b"B", b"T", b"\x8b")) + _u(huge, 4) + b".",
            b"cnumpy\nndarray\n(\x8a\x09" + _u(huge, 9) + b"\x85tR.",
            b"\x80\x04" + draw.choice((b"]", b"}", b"(", b")")) * draw.randint(100_000, 3_000_000) + b".",
            b"\x80\x04]\x94" + b"\x85" * draw.randint(900, 200_000) + b".",
            b"\x80\x04}" + one + b"cbuiltins\nbytearray\n\x8a\x09" + _u(huge, 9) + b"\x85Rs.",
            b"\x80\x04}" + one + b"K\x01s.",
            b"\x80\x04}(" + b"".join(b"\x8a\x10" + _u((2**61 - 1) * n, 16) + b"K\x00" for n in range(1, 5000)) + b"u.",
            b"c_codecs\nencode\n(X" + _u(100_000, 4) + b"a" * 100_000 + b"X\x08\x00\x00\x00punycodetR.",
            b"I" + b"9" * draw.randint(5000, 500_000) + b"\n.",
            b"p" + b"9" * draw.randint(10, 4000) + b"\n.",
            pickle.dumps({f"{text.decode()}{n}": STATE["classifier.3.weight"] for n in range(draw.randint(1, 30_000))}, 4),
        )
    )


def torch_bomb(draw: random.Random) -> bytes:
    import torch

    buffer = io.BytesIO()
    what = draw.randrange(6)
    one = torch.zeros(1)
    if what == 0:
        torch.save({draw.choice(NAMES): one.expand(draw.choice((1 << 24, 1 << 33, 1 << 40)))}, buffer)
    elif what == 1:
        torch.save({f"w{n}": one.expand(1 << 24) for n in range(draw.randint(2, 200))}, buffer)
    elif what == 2:
        value: object = {"w": one}
        for _ in range(draw.randint(3, 30)):
            value = {f"k{n}": value for n in range(draw.randint(5, 60))}
        torch.save(value, buffer)
    elif what == 3:
        held: dict = {"w": one}
        held["state_dict"] = held
        torch.save(held, buffer)
    elif what == 4:
        torch.save({"w": torch.zeros(draw.choice((4, 1 << 20)))}, buffer)
        with zipfile.ZipFile(buffer) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in members.items():
                packed.writestr(name, pickle_bomb(draw) if name.endswith("data.pkl") else data + bytes(draw.choice((0, 1 << 26))))
    else:
        torch.save({"w": torch.zeros(2, device="meta"), "s": torch.eye(3).to_sparse(), "q": [draw.choice(NAMES)] * 9}, buffer)
    return buffer.getvalue()


def safetensors_bomb(draw: random.Random) -> bytes:
    if draw.randrange(3) == 0:
        return _u(draw.choice((*HUGE, 99_999_999)), 8) + b"{}"
    huge = draw.choice((*HUGE, -1, 1e300, "x", None, True, [1]))
    tensor: dict = {"dtype": draw.choice(("F32", "BF16", "F8_E4M3", "X9", "I4", 7)), "shape": [huge], "data_offsets": [0, 4]}
    if draw.randrange(2):
        tensor["shape"], tensor["data_offsets"] = draw.choice(([1], [0, huge], [])), [0, draw.choice((4, 0, huge))]
    head: dict = {draw.choice(("w", *NAMES)): tensor, "__metadata__": {"format": "mobilenetv3-checkpoint-1", "meta": "[" * 90_000}}
    text = json.dumps(head if draw.randrange(2) else {"w": tensor}).encode()
    if draw.randrange(4) == 0:
        text = b'{"a":' * draw.randint(10, 100_000)
    return _u(len(text), 8) + text + bytes(4)


def ckpt_bomb(draw: random.Random) -> bytes:
    from mobilenetv3_common.mindspore_checkpoint import _field, _varint

    dims = b"".join(b"\x08" + _varint(draw.choice((0, *HUGE))) for _ in range(draw.choice((1, 2, 65, 100_000))))
    if draw.randrange(2):
        dims = b"\x0a" + _varint(200_000) + b"\x7f" * 200_000
    name = draw.choice((b"w", b"\xff\xfe", NAMES[0].encode()))
    tensor = dims + _field(2, draw.choice((b"Float32", b"BFloat16"))) + _field(3, bytes(draw.choice((0, 4))))
    value = _field(1, _field(1, name) + _field(2, tensor))
    return draw.choice((value, value * draw.randint(1, 50), b"\x0a" + _varint(draw.choice(HUGE)), b"\xff" * 500))


def header(shape: str, kind: str = "<f4", version: int = 1) -> bytes:
    text = f"{{'descr': {kind!r}, 'fortran_order': {shape[-2:] != '))'}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + _u(len(text), 2 if version == 1 else 4) + text


def npy_bomb(draw: random.Random) -> bytes:
    return header("()", "|O") + pickle_bomb(draw)


def npz_bomb(draw: random.Random) -> bytes:
    buffer = io.BytesIO()
    method = draw.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2))
    shape = draw.choice(
        ("(-1,)", "(True,)", f"({draw.choice(HUGE)},)", "(-2, -2)", "(" * 5000, "-" * 5000 + "1", "(1,) * 10**9", "()")
    )
    member = header(shape, draw.choice(("<f4", "|S0", "|V2147483647", "<M8[D]", "|O", "x" * 50)), draw.choice((1, 2)))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        name = draw.choice(("features.0.0.weight", *NAMES)) + ".npy"
        what = draw.randrange(5)
        if what == 0:
            with archive.open(name, "w") as file:
                count = draw.choice((1 << 22, 1 << 24 if method == zipfile.ZIP_STORED else 1 << 27))
                file.write(header(f"({count},)"))
                for _ in range(count * 4 >> 20):
                    file.write(bytes(1 << 20))
        elif what == 1:
            for number in range(draw.randint(2, 20_000)):
                archive.writestr(f"{number}", header("(0,)"))
        else:
            archive.writestr(name, member + bytes(draw.choice((0, 4, 1 << 16))))
    data = buffer.getvalue()
    return edited(data, draw) if len(data) < 1 << 16 and draw.randrange(2) else data


def tar_bomb(draw: random.Random) -> bytes:
    huge = draw.choice((1 << 70, 1 << 40, -1, -512, -(1 << 60), 1 << 33))
    size = (b"\x80" if huge >= 0 else b"\xff") + huge.to_bytes(11, "big", signed=True)
    data = bytearray(tar(draw.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)), b"1", draw.choice(("a", *NAMES))))
    places = [start for start in range(0, len(data), 512) if data[start + 257 : start + 262] == b"ustar"]
    start = draw.choice(places)
    what = draw.randrange(4)
    if what == 0:
        data[start + 124 : start + 136] = size
    elif what == 1:
        data[start + 156] = draw.choice(b"0123456LKxgSDX7")
    elif what == 2:
        pax = f" size={huge}\n".encode()
        pax = str(len(pax) + 2).encode() + pax
        data[start:start] = _header(b"x", b"%011o\0" % len(pax), b"x") + pax.ljust(512, b"\0")
    else:
        data[start:start] = (_header(b"././@LongLink", b"00000000001\0", b"L") + b"x".ljust(512, b"\0")) * draw.randint(1, 3000)
    for place in places:
        if place < len(data) and what < 2:
            block = data[place : place + 512]
            data[place + 148 : place + 156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))
    return bytes(data)


def _header(name: bytes, size: bytes, kind: bytes) -> bytes:
    block = bytearray(512)
    block[: len(name)], block[100:108], block[124:136], block[156:157] = name, b"0000644\0", size, kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))
    return bytes(block)


def yaml_bomb(draw: random.Random) -> bytes:
    wide, deep = draw.randint(5, 12), draw.randint(5, 12)
    refer = lambda n: ", ".join([f"*a{n}"] * wide)  # noqa: E731
    return draw.choice(
        (
            "a0: &a0 [x, x, x]\n" + "".join(f"a{n}: &a{n} [{refer(n - 1)}]\n" for n in range(1, deep)),
            "a0: &a0 {k: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{refer(n - 1)}]}}\n" for n in range(1, deep)),
            "lr: &a [*a]\n",
            draw.choice("[{-?!&*'\"|>%@`") * draw.randint(10, 200_000),
            "lr: " + "9" * draw.randint(10, 200_000),
            "lr: " + "59:" * draw.randint(10, 80_000) + "1",
            "lr: !!python/object/apply:os.system [id]\n",
            f'"{draw.choice(NAMES).encode("unicode_escape").decode()}": 1\n',
            "model: " + "x" * draw.randint(10, 2_000_000),
            "".join(f"k{n}: 1\n" for n in range(draw.randint(10, 30_000))),
            "lr: 2020-99-99\n",
            "- " * draw.randint(10, 100_000),
            "? " * draw.randint(10, 100_000),
        )
    ).encode()


BOMBS: dict[str, Callable[[random.Random], bytes]] = {
    "pdparams": pickle_bomb,
    "pth": torch_bomb,
    "old pth": lambda draw: torch_file(True)[:-1] + pickle_bomb(draw),
    "safetensors": safetensors_bomb,
    "ckpt": ckpt_bomb,
    "npy": npy_bomb,
    "npz": npz_bomb,
    "packed npz": npz_bomb,
    "tar": tar_bomb,
    "yaml": yaml_bomb,
    "map": yaml_bomb,
}


def files(count: int, seed: int) -> Iterator[tuple[str, str, bytes]]:
    """Name, kind and content of so many files; every third is made to take much, the others are edits of sound ones."""
    draw = random.Random(seed)
    sound = {kind: make() for kind, (_, make) in SOUND.items()}
    for number in range(count):
        kind = list(SOUND)[number % len(SOUND)]
        content = BOMBS[kind](draw) if draw.randrange(3) == 0 else edited(sound[kind], draw)
        yield f"{number:04d}{SOUND[kind][0]}", kind, content


# --- reading them --------------------------------------------------------------------------------------------------------------


def read(kind: str, path: Path, sound: Path) -> int:
    """What the commands do with a file of a kind; the exit status."""
    from mobilenetv3_common.errors import exit_on_user_error

    return exit_on_user_error(_COMMANDS.get(kind, _weights))(path, sound)


ROOT = Path(__file__).resolve().parents[1]
QUICK = ["--crop-size", "32", "--resize-size", "32", "--epochs", "1", "--batch-size", "8", "--workers", "0", "--width-mult", "0.25"]
DATA = ["--data-path", "lite_data"]


def _tool(name: str, *flags: str | Path) -> int:
    return importlib.import_module(f"tools.{name}").main([str(flag) for flag in flags])


def _out(path: Path) -> list[str]:
    return ["--output-dir", str(path.with_suffix(".run"))]


TOOLS: dict[str, Callable[[Path], int]] = {  # that read weights
    "convert": lambda path: _tool("convert_weights", path, path.with_suffix(".out.safetensors")),
    "predict": lambda path: _tool("predict", "--pretrained", path, "--img-path", "lite_data/val/cat/cat_0.JPEG"),
    "train": lambda path: _tool("train", "--pretrained", path, *DATA, *_out(path), *QUICK),
    "train ref": lambda path: _tool("train", "--framework", "ref", "--pretrained", path, *DATA, *_out(path), *QUICK),
    "eval": lambda path: _tool("eval", "--pretrained", path, *DATA),
    "doctor check": lambda path: _tool("doctor", "check", "--pretrained", path, *DATA, *QUICK),
    "doctor weights": lambda path: _tool("doctor", "weights", path, path.with_name("sound.pth")),
    "align": lambda path: _tool("align", "--weights", path, "--steps", "1", "--result-dir", path.with_suffix(".result")),
    "export": lambda path: _tool("export_model", "--pretrained", path, *_out(path)),
}


def _turn(path: Path, count: int) -> int:
    """Which of so many commands reads a file: each kind comes to each of them."""
    return int(path.name[:4]) // len(SOUND) % count if path.name[:4].isdigit() else 0


def tool_of(kind: str, path: Path) -> str:
    """Name of the command that reads a file."""
    if kind in _COMMANDS:
        return _COMMANDS[kind].__name__.strip("_")
    return list(TOOLS)[_turn(path, len(TOOLS))]


def _weights(path: Path, sound: Path) -> int:
    return TOOLS[tool_of("", path)](path)


def _record(path: Path, sound: Path) -> int:
    from alignment.record import open_record
    from alignment.record_diff import main

    status = main([str(path), str(sound)])
    if status == 1:
        found = open_record(path)
        same = found.keys() == STATE.keys() and all(
            found[name].shape == array.shape and found[name].dtype == array.dtype and np.array_equal(found[name].whole(), array)
            for name, array in STATE.items()
        )
        assert not same, "status 1 without a difference"
    return status


def _shard(path: Path, sound: Path) -> int:
    folder = path.with_suffix("")
    folder.mkdir()
    for split in ("train", "val"):
        (folder / f"{split}-000.tar").symlink_to(path)
    command = [["train", *_out(path)], ["train", "--framework", "ref", *_out(path)], ["doctor", "check"], ["doctor", "data"]]
    name, *flags = command[_turn(path, 4)]
    if flags == ["data"]:
        return _tool(name, "data", folder)
    return _tool(name, *flags, "--data-path", folder, *QUICK)


def _yaml(path: Path, sound: Path) -> int:
    if _turn(path, 2):
        return _tool("doctor", "check", "--config", path, *DATA, *QUICK)
    return _tool("train", "--config", path, *DATA, *_out(path), *QUICK)


def _map(path: Path, sound: Path) -> int:
    sides = [f"--{side}=mobilenetv3_{name}.models:mobilenet_v3_small" for side, name in (("port", "paddle"), ("reference", "ref"))]
    return _tool("convert_weights", *sides, "--names", path, "--list")


def _hungry(path: Path, sound: Path) -> int:
    """Takes more than it may, so that the measurement is seen to measure."""
    return int(np.ones(1 << 28).sum() < 0)


_COMMANDS: dict[str, Callable[[Path, Path], int]] = {
    "hungry": _hungry,
    **dict.fromkeys(("npy", "npz", "packed npz"), _record),
    "tar": _shard,
    "yaml": _yaml,
    "map": _map,
}


def _resident() -> int:
    """MiB that this process has in memory, which a child that it forks begins with."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


def in_a_child(kind: str, path: Path, sound: Path) -> dict:
    """Status, seconds, peak memory and words of reading a file in a process of its own, which may take no more than the limits."""
    words, before = path.with_suffix(".said"), _resident()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 97
        try:
            handle = os.open(words, os.O_WRONLY | os.O_CREAT)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS + 5, LIMIT_SECONDS + 5))
            resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))
            signal.alarm(6 * LIMIT_SECONDS)
            status = read(kind, path, sound)
        except BaseException:  # noqa: BLE001  # whatever it is, it is the finding
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    _, status, used = os.wait4(child, 0)
    said = words.read_bytes().decode(errors="surrogateescape")
    code = os.waitstatus_to_exitcode(status)
    seconds = used.ru_utime + used.ru_stime
    took = {
        "tool": tool_of(kind, path),
        "seconds": round(seconds, 2),
        "wall": round(time.monotonic() - began, 2),
        "mib": used.ru_maxrss // 1024 - before,
    }
    return {"name": path.name, "kind": kind, "status": code, **took, "said": said[-3000:]}


def wrong(row: dict) -> list[str]:
    """What a row has that it should not have."""
    # 1 says that there is a difference, or a problem: of records it is checked where they are compared; a doctor names it.
    finds = "np" in row["kind"] or (row["status"] == 1 and "problem" in row["said"] and "error: " not in row["said"])
    # Of weights that nobody has trained an alignment says that nothing can be told from them, which is a step that failed.
    finds = finds or (row.get("tool") == "align" and "nothing real to compare here" in row["said"])
    found = [f"status {row['status']}"] if row["status"] not in (0, 2, *([1] if finds else [])) else []
    found += ["a traceback"] if "Traceback" in row["said"] else []
    found += [f"{row['seconds']} s"] if row["seconds"] > LIMIT_SECONDS else []
    found += [f"{row['mib']} MiB"] if row["mib"] > LIMIT_MIB else []
    errors = [line for line in row["said"].splitlines() if line.startswith("error: ")]
    found += [f"{len(errors)} lines of errors"] if row["status"] == 2 and len(errors) != 1 else []
    found += ["a character that does not print"] if not "".join(row["said"].split("\n")).replace("\t", "").isprintable() else []
    return found


def main(count: int, seed: int) -> int:
    import torch  # once, for all children

    torch.set_num_threads(1)  # a child has none of its parent's threads, and would wait for them

    # What the commands import: each child has it from here.
    import mobilenetv3_ref.models  # noqa: F401
    from alignment.comparisons import STEPS, context  # noqa: F401

    for name in ("convert_weights", "predict", "train", "eval", "doctor", "align", "export_model"):
        importlib.import_module(f"tools.{name}")

    os.chdir(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOBILENETV3_CACHE"] = folder
        sound = Path(folder) / "sound.npz"
        sound.write_bytes(npz())
        (Path(folder) / "sound.pth").write_bytes(torch_file())
        for name, kind, content in files(count, seed):
            path = Path(folder) / name
            path.write_bytes(content)
            print(json.dumps(in_a_child(kind, path, sound)), flush=True)
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
