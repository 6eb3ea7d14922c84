"""Files that ask for memory or time, or are damaged: one line that names the file, and nothing larger than the file allows."""

from __future__ import annotations

import collections
import io
import json
import os
import pickle
import resource
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from alignment.audit.inputs import _of_file
from alignment.dumps.api import load
from alignment.dumps.store import TABLE
from alignment.models.names import read_map
from alignment.record import load_record, open_record
from alignment_doctor.profile.command import _earlier
from mnv3.serve import token
from mobilenetv3_common.class_list import read_class_list
from mobilenetv3_common.config_file import read_recipe
from mobilenetv3_common.errors import UserError
from mobilenetv3_common.files import refuse_stand_in, sha256_of
from mobilenetv3_common.safe_pickle import load_arrays
from mobilenetv3_common.shards import BLOCK, list_shard
from mobilenetv3_common.train_config import TrainConfig
from mobilenetv3_common.weights_file import read_state
from mobilenetv3_common.yaml_file import read_yaml
from tests.conftest import ROOT
from tests.hostile_files import SOUND, in_a_child, wrong
from tests.hostile_files import npz as npz_of_state
from tests.test_records import npy

A = np.arange(12, dtype=np.float32).reshape(3, 4)


def number(value, width):
    return value.to_bytes(width, "little")


def array_of(shape, code="f4", data=b"", fortran=False):
    """A pickle of one array whose parts are whatever they are."""
    ndarray, dtype = b"cnumpy\nndarray\n", b"cnumpy\ndtype\n"
    made = b"cnumpy.core.multiarray\n_reconstruct\n(" + ndarray + b"K\x00\x85C\x01btR"
    kind = (
        dtype + b"(X" + number(len(code), 4) + code.encode() + b"\x89\x88tR(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    sizes = b"(" + b"".join(b"\x8a\x09" + n.to_bytes(9, "little", signed=True) for n in shape) + b"t"
    return (
        b"\x80\x02"
        + made
        + b"(K\x01"
        + sizes
        + kind
        + (b"\x88" if fortran else b"\x89")
        + b"B"
        + number(len(data), 4)
        + data
        + b"tb."
    )


PICKLES = {
    "a memo index in text": b"}p99999999999999999999\n.",
    "bytes that are not there": b"\x80\x04\x8e" + number(1 << 40, 8) + b".",
    "text that is not there": b"\x80\x04\x8d" + number(1 << 40, 8) + b".",
    "old text that is not there": b"T" + number((1 << 31) - 1, 4) + b".",
    "a bytearray that is not there": b"\x80\x05\x96" + number(1 << 40, 8) + b".",
    "a frame that is not there": b"\x80\x04\x95" + number(1 << 40, 8) + b".",
    "a number of a gigabyte": b"\x8b" + number(1 << 30, 4) + b".",
    "a number of many digits": b"I" + b"9" * 100_000 + b"\n.",
    "an array that is made at once": b"cnumpy\nndarray\n(\x8a\x05" + number(1 << 33, 5) + b"\x85tR.",
    "an array without its data": array_of((1 << 40,)),
    "an array of no bytes": array_of((1 << 60,), "S0"),
    "a shape below zero": array_of((-1,)),
    "two sizes below zero": array_of((-3, -4), data=bytes(48)),
    "a type with fields": b"cnumpy\ndtype\n(]X\x01\x00\x00\x00aX\x02\x00\x00\x00f4\x86a\x89\x88tR.",
    "a type of 2 GB": b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(X\x0b\x00\x00\x00V2147483647\x89\x88tRtR.",
    "a codec": b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x08\x00\x00\x00punycodetR.",
    "a set": b"\x80\x04\x8f.",
    "an instance": b"(i__main__\nX\n.",
    "keys that collide": b"}(" + b"".join(b"\x8a\x10" + number((2**61 - 1) * (i + 1), 16) + b"K\x00" for i in range(2000)) + b"u.",
    "operations without end": b"]" * 2_100_000,
    "depth without end": b"]\x94" + b"\x85" * 100_000 + b".",
    "no end": b"(((",
    "nothing": b"",
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_takes_no_memory_that_its_file_does_not_have(name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"some\.pdparams is ") as refused:
        load_arrays(io.BytesIO(PICKLES[name]), "some.pdparams")
    assert len(refused.value.line) < 400
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024, "KiB"


def test_a_memo_index_is_only_a_name():
    """Nine bytes with which Python's unpickler in C takes 8 GB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert load_arrays(io.BytesIO(b"\x80\x04}r\xff\xff\xff\xff."), "f") == {}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024, "KiB"


def test_what_the_hostile_arrays_are_made_of_is_read_where_it_is_sound():
    assert load_arrays(io.BytesIO(array_of((3, 4), data=A.tobytes())), "f").tolist() == A.tolist()
    assert load_arrays(io.BytesIO(array_of((3, 4), data=A.tobytes("F"), fortran=True)), "f").tolist() == A.tolist()
    assert load_arrays(io.BytesIO(array_of((0, 1 << 40))), "f").shape == (0, 1 << 40)


@pytest.mark.parametrize("protocol", range(6))
def test_sound_pickles_of_every_protocol_are_read(protocol):
    large = np.random.default_rng(0).normal(size=(300, 400)).astype(np.float32)
    given = {
        "large": large,
        "turned": np.asfortranarray(large),
        "one": np.float32(3),
        "other order": np.arange(3, dtype=">i8"),
        "text": np.array(["a", "bb"]),
        "empty": np.zeros((0, 3)),
        "plain": [1, 2.5, None, True, (1, 2), "ü" * 40_000, b"x" * 100_000],
        "tied": large,
    }
    found = load_arrays(io.BytesIO(pickle.dumps(given, protocol)), "f")
    assert found["plain"] == given["plain"] and found["tied"] is found["large"]
    for name in given.keys() - {"plain"}:
        assert np.array_equal(found[name], given[name]), name
        assert found[name].dtype == given[name].dtype.newbyteorder("=") and found[name].shape == given[name].shape


def test_bytes_that_many_arrays_share_are_not_multiplied():
    data = bytes(1 << 17)
    one = array_of((1 << 15,), data=b"")[2:-1].replace(b"B" + number(0, 4), b"h\x00")
    content = b"\x80\x02B" + number(len(data), 4) + data + b"q\x000]" + b"".join(one + b"a" for _ in range(50)) + b"."
    with pytest.raises(UserError, match="use the same bytes several times"):
        load_arrays(io.BytesIO(content), "f")


# --- records -------------------------------------------------------------------------------------------------------------------


def npz(path, content=None, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", npy(A) if content is None else content)
    return path


def header(shape, kind="<f4"):
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + number(len(text), 2) + text


MEMBERS = {
    "a shape of -1": header("(-1,)"),
    "a shape that is true": header("(True,)") + bytes(4),
    "a shape without its data": header(f"({1 << 40},)"),
    "data without a shape": header("(1,)") + bytes(400),
    "a type of no bytes": header(f"({1 << 60},)", "|S0"),
    "a literal without end": header("(" * 9000),
    "signs without end": header("-" * 9000 + "1"),
    "a long header": b"\x93NUMPY\x02\x00" + number((1 << 32) - 1, 4) + b"{}",
    "not an array": b"text",
    "objects": npy(np.array([None])),
    "a date": npy(np.array(["2020-01-01"], dtype="datetime64[D]")),
    "fields": npy(np.zeros(2, dtype=[("a", "f4"), ("b", "i4")])),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_that_is_no_array_is_refused(name, tmp_path):
    with pytest.raises(UserError, match=r"r\.npz"):
        open_record(npz(tmp_path / "r.npz", content=MEMBERS[name]))


@pytest.mark.parametrize("name", ["a shape without its data", "a shape of -1", "signs without end"])
def test_inputs_of_an_audit_are_read_by_the_same_reader(name, tmp_path):
    """numpy.load asks for the memory of the shape, and ends in a MemoryError."""
    with pytest.raises(UserError, match=r"^--input .*r\.npz: cannot be read: "):
        _of_file(str(npz(tmp_path / "r.npz", content=MEMBERS[name])))


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_compression_that_numpy_does_not_use_is_refused(method, tmp_path):
    with pytest.raises(UserError, match=r"r\.npz is damaged or not an \.npz of arrays: 'x' is compressed in a way"):
        open_record(npz(tmp_path / "r.npz", method=method))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damage_within_the_data_is_found_when_they_are_read(method, tmp_path):
    large = np.random.default_rng(0).normal(size=1 << 16)
    path = npz(tmp_path / "r.npz", content=npy(large), method=method)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 64] = bytes(range(64))
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"r\.npz: 'x' is damaged: "):
        load_record(path)


def test_zeros_that_grow_without_end_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "r.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w") as member:
            member.write(header(f"({1 << 26},)"))
            for _ in range(1 << 8):
                member.write(bytes(1 << 20))
    with pytest.raises(UserError, match=r"would take 0.25 GiB of memory, more than 16 times as much"):
        open_record(tmp_path / "r.npz")
    np.savez_compressed(tmp_path / "sound.npz", x=np.zeros(1 << 24, np.float32))
    assert not load_record(tmp_path / "sound.npz")["x"].any(), "64 MiB of zeros are harmless"


def test_a_name_that_is_there_twice_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "r.npz", "w") as archive:
        archive.writestr("x.npy", npy(A))
        archive.writestr("x", npy(A))  # numpy calls it x, too
    with pytest.raises(UserError, match="holds 'x' twice"):
        open_record(tmp_path / "r.npz")


# --- YAML ----------------------------------------------------------------------------------------------------------------------

ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
YAML = {
    "aliases nine deep": ALIASES,
    "merged aliases": "a0: &a0 {k: 1}\n"
    + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}\n" for i in range(1, 10)),
    "a value that holds itself": "model: &a [*a]\n",
    "brackets without end": "[" * 100_000,
    "braces without end": "{" * 100_000,
    "dashes without end": "- " * 100_000,
    "a number without end": "lr: " + "9" * 200_000,
    "a number on base 60": "lr: " + "59:" * 50_000 + "1",
    "a date that there is not": "lr: 2020-99-99\n",
    "a longer file": "# " + "x" * 2_000_000,
    "bytes": "lr: \x00",
    "a tag": "lr: !!python/object/apply:os.system [id]",
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", YAML)
def test_a_recipe_takes_bounded_time(name, tmp_path):
    (tmp_path / "r.yaml").write_text(YAML[name])
    with pytest.raises(UserError, match=r"r\.yaml") as refused:
        read_recipe(tmp_path / "r.yaml", TrainConfig)
    assert "\n" not in refused.value.line


@pytest.mark.parametrize("name", ["aliases nine deep", "a value that holds itself", "brackets without end", "a longer file"])
def test_a_map_of_names_takes_bounded_time(name, tmp_path):
    (tmp_path / "r.yaml").write_text(YAML[name])
    with pytest.raises(UserError, match=r"--names .*r\.yaml"):
        read_map(tmp_path / "r.yaml")


def test_a_few_aliases_are_a_recipe(tmp_path):
    (tmp_path / "r.yaml").write_text(
        "lr: &rate 0.5\nmin_lr: *rate\n" if "min_lr" in TrainConfig.__dataclass_fields__ else "lr: &r 0.5\n"
    )
    assert read_recipe(tmp_path / "r.yaml", TrainConfig)["lr"] == 0.5


# --- shards --------------------------------------------------------------------------------------------------------------------


def tar_header(name="a.jpg", size=b"00000000003\0", kind=b"0"):
    block = bytearray(BLOCK)
    block[: len(name)] = name.encode()
    block[100:108], block[124:136], block[156:157] = b"0000644\0", size, kind
    block[257:265] = b"ustar\x0000"
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    return bytes(block)


def large(value):
    """A size as GNU tar writes those of 8 GB and more; below zero it begins with 255."""
    return (b"\x80" if value >= 0 else b"\xff") + value.to_bytes(11, "big", signed=True)


PAX = b"30 size=-99999999999999999999\n"
SHARDS = {
    "2 ** 70 bytes": tar_header(size=large(1 << 70)),
    "size below zero": tar_header(size=b"00000000003\0") + bytes(BLOCK) + tar_header("b.jpg", large(-1024)),
    "first size below zero": tar_header(size=large(-512)),
    "a name of a terabyte": tar_header("././@LongLink", large(1 << 40), b"L"),
    "a name of a megabyte": tar_header("././@LongLink", b"00004000000\0", b"L") + b"x" * (1 << 20) + tar_header(),
    "attributes of a size below zero": tar_header("x", b"%011o\0" % len(PAX), b"x") + PAX.ljust(BLOCK, b"\0") + tar_header(),
    "names of names without end": tar_header("././@LongLink", b"00000000001\0", b"L").ljust(2 * BLOCK, b"x") * 3000,
    "sparse": tar_header(kind=b"S"),
    "a link": tar_header(kind=b"2"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SHARDS)
def test_a_shard_is_refused_in_one_line(name, tmp_path):
    path = tmp_path / "train-000.tar"
    path.write_bytes(SHARDS[name] + bytes(4 * BLOCK))
    with pytest.raises(UserError, match=r"train-000\.tar") as refused:
        list(list_shard(path, (".jpg",), 10, "there may be"))
    assert len(refused.value.line) < 600


def test_a_shard_whose_headers_are_made_here_is_read(tmp_path):
    path = tmp_path / "train-000.tar"
    path.write_bytes(
        tar_header() + b"jpg".ljust(BLOCK, b"\0") + tar_header("a.cls", large(1)) + b"7".ljust(BLOCK, b"\0") + bytes(2 * BLOCK)
    )
    assert tarfile.is_tarfile(path)
    assert list(list_shard(path, (".jpg",), 10, "there may be")) == [("a.jpg", 7, BLOCK, 3)]


def test_an_archive_of_several_disks_is_one_line(tmp_path):
    """zipfile raises where it is only asked whether a file is an archive."""
    locator = b"PK\x06\x07" + number(0, 4) + number(0, 8) + number(2, 4)
    (tmp_path / "x.pth").write_bytes(b"PK\x03\x04" + bytes(60) + locator + b"PK\x05\x06" + bytes(18))
    with pytest.raises(UserError, match=r"x\.pth is damaged: zipfiles that span multiple disks"):
        read_state(tmp_path / "x.pth")


# --- hundreds of them --------------------------------------------------------------------------------------------------------


def outcomes(count, seed):
    run = subprocess.run(
        [sys.executable, "-m", "tests.hostile_files", str(count), str(seed)],
        cwd=ROOT, capture_output=True, text=True, timeout=3000, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(rows) == count
    return rows


def test_a_sample_of_every_kind_is_read_or_refused_within_the_limits():
    """Two of each: an edit of a sound file, and one that asks for much."""
    rows = outcomes(2 * len(SOUND), 3)
    assert [(row["name"], row["kind"], wrong(row), row["said"]) for row in rows if wrong(row)] == []
    assert {row["status"] for row in rows} >= {0, 2}


@pytest.mark.slow
@pytest.mark.weekly
@pytest.mark.timeout(3600)
def test_five_hundred_files_are_read_or_refused_within_the_limits():
    rows = outcomes(500, 0)
    assert [(row["name"], row["kind"], wrong(row), row["said"]) for row in rows if wrong(row)] == []
    statuses = collections.Counter(row["status"] for row in rows)
    assert statuses[2] > 250 and statuses[0] > 25 and statuses[1] > 3, "some are sound, some differ, most are refused"


def test_the_limits_catch_what_they_should():
    good = {"kind": "npy", "status": 2, "seconds": 1.0, "mib": 200, "said": "error: x is damaged\n"}
    assert wrong(good) == []
    for change, found in (
        ({"status": -9}, "status -9"),
        ({"status": 1, "kind": "pth"}, "status 1"),
        ({"seconds": 21.0}, "21.0 s"),
        ({"mib": 1025}, "1025 MiB"),
        ({"said": "Traceback (most recent call last)\nerror: x\n"}, "a traceback"),
        ({"said": ""}, "0 lines of errors"),
        ({"said": "error: \x1b[2J\n"}, "a character that does not print"),
    ):
        assert wrong(good | change) == [found]
    aligned = {**good, "kind": "pth", "tool": "align", "status": 1}
    assert wrong(aligned | {"said": "nothing real to compare here: fresh weights\n"}) == []
    assert wrong(aligned | {"said": "first divergence: forward\n"}) == ["status 1"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npz"
        path.write_bytes(npz_of_state())
        row = in_a_child("npz", path, path)
        assert row["status"] == 0 and wrong(row) == [] and "4 of 4 arrays agree" in row["said"]
        hungry = in_a_child("hungry", path, path)
        assert hungry["mib"] > 1024 and any("MiB" in one for one in wrong(hungry)), "memory is measured"


READERS = {
    "a recipe, a map of names": lambda path: read_yaml(path, "config"),
    "class names": read_class_list,
    "a list of pictures, arrays of a dump": sha256_of,
    "tensors of others": refuse_stand_in,
    "a token": token,
    "an earlier profile": lambda path: _earlier(str(path)),
    "a dump": lambda path: load(path.parent),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_or_a_device_in_the_place_of_a_file_is_refused_and_not_waited_for(reader, tmp_path):
    pipe, read = tmp_path / TABLE, READERS[reader]
    os.mkfifo(pipe)
    stuck = threading.Timer(20, lambda: os.close(os.open(pipe, os.O_RDWR)))  # a reader that waits is let go, and fails the test
    stuck.start()
    begun = time.monotonic()
    try:
        with pytest.raises(UserError, match="is a pipe or a device"):
            read(pipe)
    finally:
        stuck.cancel()
    assert time.monotonic() - begun < 15
    if reader != "a dump":
        with pytest.raises(UserError, match="null is a pipe or a device"):
            read(Path("/dev/null"))
