"""A picture with what was seen on it, for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from mobilenetv3_common.files import atomic_open
from mobilenetv3_paddle.deploy.predictor import Prediction

HEIGHT, PANEL, MARGIN, ROW = 360, 360, 14, 34


def annotated(image: Image.Image, predictions: Sequence[Prediction]) -> Image.Image:
    """The picture scaled to 360 pixels' height (at most 720 wide), and beside it names, bars and probabilities.

    Args:
        image: RGB.
        predictions: likeliest first; as many as fit, ten, are drawn.
    """
    scale = min(HEIGHT / image.height, 2 * HEIGHT / image.width)
    shown = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))), Image.Resampling.BICUBIC)
    canvas = Image.new("RGB", (shown.width + PANEL, HEIGHT), "white")
    canvas.paste(shown, (0, (HEIGHT - shown.height) // 2))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(15)
    left, width = shown.width + MARGIN, PANEL - 2 * MARGIN
    for number, p in enumerate(predictions[: (HEIGHT - 2 * MARGIN) // ROW]):
        top = MARGIN + number * ROW
        share = f"{100 * p.probability:.1f} %"
        room = width - draw.textlength(share, font) - MARGIN
        name = p.name
        while draw.textlength(name, font) > room:
            name = name[:-2].rstrip("…") + "…"
        draw.text((left, top), name, "black", font)
        draw.text((left + width, top), share, "black", font, anchor="ra")
        draw.rectangle((left, top + 21, left + width, top + 26), "#e6e8eb")
        draw.rectangle((left, top + 21, left + round(width * p.probability), top + 26), "#0969da" if number == 0 else "#8c959f")
    return canvas


def save_annotated(image: Image.Image, predictions: Sequence[Prediction], path: Path) -> None:
    """Write ``annotated`` as a PNG, whole or not at all."""
    with atomic_open(path) as file:
        annotated(image, predictions).save(file, format="PNG")
