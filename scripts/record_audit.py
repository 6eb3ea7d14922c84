"""Records docs/screenshots/audit.svg: a port is broken, audited, fixed with the patch that the audit writes, and audited again.

    python scripts/record_audit.py [--output FILE.svg]

The commands run in a real terminal (a pty), in a folder of their own that holds the port of docs/port_your_own.md. What they print
is kept as it is, its speed apart: waiting is shortened, and a screen that is to be read stands still. The picture needs no script.
"""

from __future__ import annotations

import argparse
import html
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from mobilenetv3_common.errors import UserError, exit_on_user_error  # noqa: E402
from mobilenetv3_common.files import atomic_open  # noqa: E402

OUTPUT = ROOT / "docs" / "screenshots" / "audit.svg"
COLUMNS, ROWS = 100, 26
SECONDS = 20.0
FILES = {"vit_port_fixed.py": "port.py", "vit_reference.py": "reference.py"}
AUDIT = "alignment audit --port port.py:ViT --reference reference.py:VisionTransformer --input 2x3x32x32"
SCENES = (  # what is said, the command, and the beginnings of lines at which the screen stands still
    (
        "# 1. break a verified port: GELU by tanh, as many ports have it",
        "sed -i 's/nn.GELU()/nn.GELU(approximate=True)/' port.py",
        (),
    ),
    (
        "# 2. audit it: the place, the mistake, the line to change, and its correction",
        f"{AUDIT} --write-patch fix.diff",
        ("  with ",),
    ),
    ("# 3. fix it with the patch, and audit it again", f"patch -p1 < fix.diff && {AUDIT}", ("PASS",)),
)
STANDS, LINE, TYPED, AFTER = 4.5, 0.05, 0.02, 0.7  # seconds, before all is brought to SECONDS
CHARACTER, LEADING, MARGIN = 7.8, 17, 12  # pixels
COLOURS = {"green": "#3fb950", "red": "#ff7b72", "brown": "#d29922", "blue": "#58a6ff", "cyan": "#39c5cf", "magenta": "#bc8cff"}
PLAIN = "#e6edf3"

Row = tuple[tuple[str, str, bool], ...]  # pieces of one line: text, colour, whether it is bold


@dataclass(frozen=True)
class Frame:
    """The screen for some time.

    Attributes:
        rows: from the top.
        seconds: how long it stands.
    """

    rows: tuple[Row, ...]
    seconds: float


def printed(command: str, folder: Path) -> str:
    """What a command prints in a terminal, in ``folder``.

    Raises:
        UserError: a command of the recording is not there.
    """
    leader, follower = pty.openpty()
    size = {"COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
    path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", "")])
    env = {**os.environ, **size, "TERM": "xterm-256color", "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=env, stdin=follower, stdout=follower, stderr=follower
    ) as running:
        os.close(follower)
        text = bytearray()
        try:
            while chunk := os.read(leader, 65536):
                text += chunk
        except OSError:  # the terminal's other end is closed
            pass
    os.close(leader)
    if running.returncode == 127:
        raise UserError(f"the recording needs a program that is not there: {command}")
    return text.decode()


def recorded() -> list[Frame]:
    """Run the scenes, and keep the screens."""
    import pyte

    screen = pyte.Screen(COLUMNS, ROWS)
    stream, frames = pyte.Stream(screen), [Frame((), 0.3)]

    def keep(seconds: float) -> None:
        frames.append(Frame(tuple(_row(screen.buffer[y]) for y in range(ROWS)), seconds))

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name, copy in FILES.items():
            shutil.copyfile(ROOT / "docs" / "examples" / name, work / copy)
        (work / "bin").mkdir()  # the command as pip installs it
        (work / "bin" / "alignment").write_text(f'#!/bin/sh\nexec {sys.executable} -W ignore -m alignment "$@"\n')
        (work / "bin" / "alignment").chmod(0o755)
        for said, command, stops in SCENES:
            stream.feed(f"\033[36m{said}\033[0m\r\n$ ")
            for start in range(0, len(command), 8):
                stream.feed(command[start : start + 8])
                keep(8 * TYPED)
            stream.feed("\r\n")
            for line in printed(command, work).splitlines(keepends=True):
                stream.feed(line)
                plain = line.split("\r")[-1] if line.endswith("\n") else line
                keep(STANDS if any(_text(line).startswith(stop) for stop in stops) else LINE if plain else 0.0)
            keep(AFTER)
    return _at_speed(frames)


def _text(line: str) -> str:
    import re

    return re.sub(r"\033\[[\d;]*m", "", line)


def _at_speed(frames: list[Frame]) -> list[Frame]:
    """Equal screens as one, in ``SECONDS`` altogether."""
    kept: list[Frame] = []
    for frame in frames:
        if kept and kept[-1].rows == frame.rows:
            kept[-1] = Frame(frame.rows, kept[-1].seconds + frame.seconds)
        else:
            kept.append(frame)
    whole = sum(frame.seconds for frame in kept)
    return [Frame(frame.rows, frame.seconds * SECONDS / whole) for frame in kept]


def _row(cells) -> Row:  # type: ignore[no-untyped-def]
    pieces: list[list] = []
    for x in range(COLUMNS):
        cell = cells[x]
        style = COLOURS.get(cell.fg, PLAIN), cell.bold
        if pieces and tuple(pieces[-1][1:]) == style:
            pieces[-1][0] += cell.data
        else:
            pieces.append([cell.data, *style])
    if pieces and pieces[-1][1] == PLAIN:
        pieces[-1][0] = pieces[-1][0].rstrip()
    return tuple((text, colour, bold) for text, colour, bold in pieces if text)


def drawing(frames: list[Frame]) -> str:
    """The recording as an animated SVG; every line stands in it once; who wants no motion sees the last screen."""
    wide, tall = round(COLUMNS * CHARACTER + 2 * MARGIN), ROWS * LEADING + 2 * MARGIN
    known: dict[Row, int] = {}
    screens = []
    for number, frame in enumerate(frames):
        uses = []
        for y, row in enumerate(frame.rows):
            if row:
                uses.append(f'<use href="#r{known.setdefault(row, len(known))}" y="{(y + 1) * LEADING}"/>')
        screens.append(f'<g transform="translate(0 {number * tall})">{"".join(uses)}</g>')
    rows = "".join(f'<text id="r{number}" xml:space="preserve">{_pieces(row)}</text>' for row, number in known.items())
    at, steps = 0.0, []
    for number, frame in enumerate(frames):
        steps.append(f"{100 * at / SECONDS:.3f}%{{transform:translateY(-{number * tall}px)}}")
        at += frame.seconds
    last = (len(frames) - 1) * tall
    steps.append(f"100%{{transform:translateY(-{last}px)}}")
    style = (
        f"text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{PLAIN}}}"
        f"@keyframes play{{{''.join(steps)}}}.film{{animation:play {SECONDS:g}s step-end infinite}}"
        f"@media (prefers-reduced-motion:reduce){{.film{{animation:none;transform:translateY(-{last}px)}}}}"
    )
    title = "A terminal: a port is broken, an audit finds the mistake and its line, the patch fixes it, and the audit passes"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}" role="img">\n'
        f"<title>{title}</title><style>{style}</style>\n<defs>{rows}</defs>\n"
        f'<rect width="{wide}" height="{tall}" rx="8" fill="#0d1117"/>\n'
        f'<svg x="{MARGIN}" y="{MARGIN - 4}" width="{wide - 2 * MARGIN}" height="{tall}"><g class="film">\n'
        + "\n".join(screens)
        + "\n</g></svg>\n</svg>\n"
    )


def _pieces(row: Row) -> str:
    """A line; ``textLength`` keeps the columns of pieces apart whatever the font."""
    made, column = [], 0
    for text, colour, bold in row:
        if text.strip():
            weight = ' font-weight="bold"' if bold else ""
            fill = "" if colour == PLAIN else f' fill="{colour}"'
            inside = f'x="{column * CHARACTER:.1f}" textLength="{len(text) * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs"'
            made.append(f"<tspan {inside}{fill}{weight}>{html.escape(text)}</tspan>")
        column += len(text)
    return "".join(made)


@exit_on_user_error
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=OUTPUT, metavar="FILE.svg", help=f"(default: {OUTPUT.relative_to(ROOT)})")
    output = parser.parse_args(argv).output
    text = drawing(recorded())
    with atomic_open(output, "w") as file:
        file.write(text)
    print(f"{output}: {len(text.encode()) / 1e3:.0f} kB, {SECONDS:g} seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
