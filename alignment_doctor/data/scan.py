"""Every picture of a data set measured, by several processes, and kept in a file so that an interrupted scan goes on."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from alignment_doctor.data.measure import ROW, UNREADABLE, measure_files
from mobilenetv3_common.errors import UserError, shown

CHUNK = 512  # pictures that a process takes at a time, at most
ANSWER = 10  # seconds within which a cluster's scheduler has to answer
Chunk = tuple[list[int], np.ndarray, dict[int, str]]  # places, rows, errors by place in the chunk


def scan(
    root: Path, names: Sequence[str], processes: int, kept: Path | None = None, dask: str | None = None
) -> tuple[np.ndarray, dict[int, str]]:
    """Measure every picture once.

    Args:
        root: the data path.
        names: of the pictures, relative to it, each once.
        processes: that decode; 1 decodes in this one.
        kept: a file that holds what was measured before, and gets what is measured now. A picture is measured again where
            its size or its time of change differs.
        dask: address of the scheduler of a Dask cluster whose workers decode in place of processes, and see the same folder.

    Returns:
        As ``measure_files``.

    Raises:
        UserError: ``kept`` cannot be used, a process was killed, or the cluster cannot be used.
    """
    rows = np.zeros(len(names), dtype=ROW)
    errors: dict[int, str] = {}
    with Kept(kept) as store:
        left = list(range(len(names)))
        if store.known:
            left = [place for place in left if not store.restore(root, names[place], place, rows, errors)]
        size = min(CHUNK, max(16, len(left) // (8 * processes)))
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        results = _over_cluster(root, names, chunks, dask) if dask else _over_processes(root, names, chunks, processes)
        for places, measured, wrong in _shown(results, len(left)):
            rows[places] = measured
            for inner, text in wrong.items():
                errors[places[inner]] = text
            store.add([names[place] for place in places], measured, wrong)
    return rows, errors


def _shown(results: Iterator[Chunk], total: int) -> Iterator[Chunk]:
    """The same chunks, with a bar on a terminal."""
    from tqdm import tqdm

    with tqdm(total=total, unit="picture", dynamic_ncols=True, disable=not sys.stderr.isatty()) as bar:
        try:
            for result in results:
                bar.update(len(result[0]))
                yield result
        except KeyboardInterrupt:
            stopped = UserError("interrupted; with --scan FILE the same command goes on where it was")
            stopped.status = 130
            raise stopped from None


def _over_processes(root: Path, names: Sequence[str], chunks: list[list[int]], processes: int) -> Iterator[Chunk]:
    """Each chunk's places, rows and errors, in the order in which they come back."""
    try:
        from joblib import Parallel, delayed
        from joblib.externals.loky.process_executor import TerminatedWorkerError
    except ImportError as error:
        raise UserError("decoding with several processes needs joblib: pip install joblib") from error
    tasks = (delayed(_work)(root, places, [names[place] for place in places]) for places in chunks)
    parallel = Parallel(n_jobs=min(processes, max(len(chunks), 1)), return_as="generator_unordered", batch_size=1)
    try:
        yield from parallel(tasks)
    except TerminatedWorkerError as error:
        raise UserError(
            f"a process that decodes {root} was killed, for lack of memory perhaps: use fewer --processes, and --scan FILE"
        ) from error


def _over_cluster(root: Path, names: Sequence[str], chunks: list[list[int]], address: str) -> Iterator[Chunk]:
    """The same on the workers of a Dask cluster: a few chunks at a time, since joblib gives whole lists back there."""
    try:
        from dask.distributed import Client, KilledWorker
        from joblib import Parallel, delayed, parallel_config
    except ImportError as error:
        raise UserError("--dask needs joblib and Dask's distributed: pip install joblib distributed") from error
    try:
        client = Client(address, timeout=ANSWER)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"--dask {address}: no scheduler of Dask answers there ({error}); start one with dask scheduler") from error
    folder = root.absolute()
    with client, parallel_config(backend="dask", client=client):
        workers = len(client.scheduler_info()["workers"])
        if not workers:
            raise UserError(f"--dask {address}: the scheduler has no worker; start one with dask worker {address}")
        for start in range(0, len(chunks), 4 * workers):
            tasks = [delayed(_work)(folder, places, [names[n] for n in places]) for places in chunks[start : start + 4 * workers]]
            try:
                made = Parallel(n_jobs=-1, batch_size=1)(tasks)
            except KilledWorker as error:
                raise UserError(f"--dask {address}: a worker was killed, for lack of memory perhaps ({error})") from error
            for places, rows, errors in made:
                gone = [n for n in errors if rows["state"][n] == UNREADABLE and (folder / names[places[n]]).is_file()]
                if gone:
                    raise UserError(
                        f"--dask {address}: a worker cannot read {folder / names[places[gone[0]]]}, as this machine can"
                    )
            yield from made


def _work(root: Path, places: list[int], names: list[str]) -> Chunk:
    return places, *measure_files(root, names)


class Kept(contextlib.AbstractContextManager):
    """Rows on disk, by name; without a file, nothing is kept.

    Raises:
        UserError: the file is damaged, another program's, or cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[str, tuple[bytes, str]] = {}
        self.base: sqlite3.Connection | None = None
        if path is None:
            return
        try:
            self.base = sqlite3.connect(path)
            self.base.execute("CREATE TABLE IF NOT EXISTS pictures (name TEXT PRIMARY KEY, row BLOB, error TEXT)")
            self.known = {name: (row, error) for name, row, error in self.base.execute("SELECT name, row, error FROM pictures")}
        except sqlite3.Error as error:
            raise UserError(f"--scan {path} cannot be used ({error}): give a new file in a folder that can be written") from error

    def restore(self, root: Path, name: str, place: int, rows: np.ndarray, errors: dict[int, str]) -> bool:
        """Whether a picture's row was kept and holds still; it is then put in its place."""
        data, error = self.known.get(shown(name), (b"", ""))
        if len(data) != ROW.itemsize:
            return False
        row = np.frombuffer(data, ROW)[0]
        try:
            status = os.stat(root / name)
        except OSError:
            return False
        if (status.st_size, status.st_mtime_ns) != (row["bytes"], row["changed"]):
            return False
        rows[place] = row
        if error:
            errors[place] = error
        return True

    def add(self, names: Sequence[str], rows: np.ndarray, errors: dict[int, str]) -> None:
        """Keep a chunk, whole or not at all."""
        if self.base is None:
            return
        entries = [(shown(name), rows[place].tobytes(), errors.get(place, "")) for place, name in enumerate(names)]
        try:
            with self.base:
                self.base.executemany("INSERT OR REPLACE INTO pictures VALUES (?, ?, ?)", entries)
        except sqlite3.Error as error:
            raise UserError(f"--scan {self.path} cannot be written ({error})") from error

    def __exit__(self, *_: object) -> None:
        if self.base is not None:
            self.base.close()
