"""What int8 costs, for people: the worst layers in a terminal, and int8.html, one file that opens from disk."""

from __future__ import annotations

from pathlib import Path

from mobilenetv3_common.drawing import EXACT, PORT, REFERENCE, STYLE, Series, bars, chart, escape, table
from mobilenetv3_common.files import atomic_open
from mobilenetv3_paddle.deploy.bundle import Bundle
from mobilenetv3_paddle.deploy.int8_layers import BAD, BFLOAT16, FLOAT32, WITHIN, WORST, LayerCost
from mobilenetv3_paddle.deploy.quantize import ALL, AS_KEPT, EVERYTHING, Quantized
from mobilenetv3_paddle.deploy.report import processor_name

PAGE = "int8.html"
COLOURS = {FLOAT32: REFERENCE, ALL: PORT, AS_KEPT: "--c", BFLOAT16: EXACT}
_STYLE = "main{max-width:76rem}.layers td:nth-child(-n+2){white-space:nowrap}.layers th,.layers td{padding:.3rem .4rem}"
GUIDE = (
    "<strong>Ratio</strong>: signal to noise of the logits in dB. 20 dB: the noise is a tenth of them; 40 dB: a hundredth; 200 dB: "
    "they are equal. <strong>Same class</strong>: share of the pictures that the quantiser has not seen whose likeliest class is "
    "float32's. <strong>Shift</strong>: mean distance of a logit from float32's, on the same pictures.",
    f"<strong>Bad</strong> is a layer that alone brings the logits below {BAD:g} dB. <code>--int8-keep auto</code> leaves it in "
    "float32, with its weights, in every choice but that of everything.",
    "<strong>Weights, input, output</strong>: each of these tensors rounded to int8 by itself, in dB of the tensor. 8 bits give 48 "
    "dB where values fill their range evenly. Few large values stretch the range. The tensor's own ratio may stay high then, since "
    "they are most of its size, while all others are rounded away. <strong>Cause</strong> is therefore measured: which of the "
    "three, rounded alone, does the most harm to the logits, and their ratio then.",
    "<strong>bfloat16 is emulated</strong>: ONNX Runtime has no kernels of it on a CPU. Weights and every value are rounded to "
    "bfloat16, and the sums are float32's, as on a processor that has bfloat16. Its time is therefore not known from here.",
)


def lines(result: Quantized) -> list[str]:
    """The worst layers, one screen."""
    head = ("alone", "same class", "shift", "without", "same class", "weights", "input", "output", "kB")
    text = "{:24} {:18} {:>6} {:>10} {:>8} {:>8} {:>10} {:>8} {:>5} {:>6} {:>6}  {}"
    shown = list(result.layers.items())[:WORST]
    found = [
        f"what a layer costs in int8 alone, and all without it: the {len(shown)} worst of {len(result.layers)}, ratios in dB",
        text.format("layer", "what", *head, "cause"),
    ]
    for name, layer in shown:
        alone, without = layer.alone, layer.without
        rest = [f"{without.ratio:.1f}", f"{without.agreement:.1%}"] if without else ["-", "-"]
        figures = [f"{alone.ratio:.1f}", f"{alone.agreement:.1%}", f"{alone.shift:.4f}", *rest, *map(_one, _tensors(layer))]
        found.append(text.format(name[-24:], layer.what[:18], *figures, f"{layer.kilobytes:.1f}", _cause(layer)))
    for name, cost in result.inside.costs.items() if result.inside else ():
        found.append(f"{name:21} {cost.ratio:6.1f} dB of the logits, {cost.agreement:6.1%} as float32, shift {cost.shift:.4f}")
    bad = [name for name, layer in result.layers.items() if layer.bad]
    told = f"bad, below {BAD:g} dB alone: {', '.join(bad)}" if bad else f"no layer is bad: each alone leaves {BAD:g} dB or more"
    good, why = result.worth()
    return [*found, told, f"int8 is {'' if good else 'not '}worth having here: {why}"]


def _cause(layer: LayerCost) -> str:
    return f"{layer.cause[0]}, {layer.cause[1]:.1f}" if layer.cause else "-"


def _tensors(layer: LayerCost) -> tuple[float | None, float | None, float | None]:
    return layer.weights, layer.input, layer.output


def _one(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def write(folder: Path, bundle: Bundle, result: Quantized) -> Path:
    """Write int8.html, whole or not at all.

    Raises:
        UserError: it cannot be written.
    """
    with atomic_open(folder / PAGE, "w") as file:
        file.write(page(bundle, result))
    return folder / PAGE


def page(bundle: Bundle, result: Quantized) -> str:
    """The page as HTML; it loads nothing from elsewhere and runs no script."""
    good, told = result.worth()
    title = f"int8 of {bundle.model}, layer by layer"
    verdict = f"int8 is {'' if good else 'not '}worth having here: {told}."
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">',
        f'<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{STYLE}{_STYLE}</style></head><body>',
        f'<a class="skip" href="#layers">Skip to the layers</a><main><h1>{escape(title)}</h1>',
        f'<p class="verdict {"good" if good else "bad"}" role="status">{escape(verdict)}</p>',
        *(f'<p class="note">{escape(line)}</p>' for line in _remarks(result)),
        f"<h2>Agreement, size and time</h2>{_choices(result)}",
        f"<h2>The error along the network</h2>{_along(result)}",
        f'<h2 id="layers">Layers, the worst first</h2>{_worst(result)}',
        f'<details class="read"><summary>How to read this</summary>{"".join(f"<p>{line}</p>" for line in GUIDE)}</details>',
        f"<details><summary>All that was tried ({len(result.trials)})</summary>{_tried(result)}</details>",
        f"<details><summary>What was run</summary>{_facts(bundle, result)}</details>",
        "</main></body></html>\n",
    ]
    return "\n".join(parts)


def _remarks(result: Quantized) -> list[str]:
    """What is to be known of the figures, and which layers are bad."""
    bad = [name for name, layer in result.layers.items() if layer.bad]
    said = [
        f"Bad alone, and left in float32: {', '.join(bad)}." if bad else f"No layer is bad: each alone leaves {BAD:g} dB or more."
    ]
    return said + [f"{one[0].upper()}{one[1:]}." for one in result.doubts()]


def _number(text: str) -> str:
    return f'<td class="n">{text}</td>'


def _choices(result: Quantized) -> str:
    """float32, int8 everywhere, int8 as it is kept, bfloat16."""
    if result.inside is None:
        return ""
    trials = {trial.name: trial for trial in result.trials}
    named, rows, times, sizes = {ALL: trials[EVERYTHING], AS_KEPT: trials[result.chosen]}, [], [], []
    known = {FLOAT32: (result.fp32_size, result.fp32_milliseconds), BFLOAT16: (result.inside.bfloat16_size, 0.0)}
    known |= {name: (trial.size, trial.ratio * result.fp32_milliseconds) for name, trial in named.items()}
    for name, cost in result.inside.costs.items():
        size, time = (f"{value:.3g}" for value in (known[name][0] / 1e6, known[name][1]))
        sizes.append((name, float(size)))
        times += [(name, float(time))] if known[name][1] else []
        figures = (f"{cost.agreement:.1%}", f"{cost.ratio:.1f}", f"{cost.shift:.4f}", size, time if known[name][1] else "-")
        rows.append([f"<td>{escape(name)}</td>", *map(_number, figures)])
    head = ("", "same class", "ratio, dB", "shift", "size, MB", "ms a picture")
    kept = f"As kept: int8 arithmetic in {result.chosen}. Agreement on {result.judged_on} pictures that did not calibrate."
    return (
        table(head, rows, "Agreement, size and time")
        + f'<p class="note">{escape(kept)}</p>'
        + bars("Milliseconds a picture, batch 1", times)
        + bars("Size in MB", sizes)
    )


def _along(result: Quantized) -> str:
    if result.inside is None:
        return ""
    series = [Series(name, values, colour=COLOURS[name], dashed=name == BFLOAT16) for name, values in result.inside.errors.items()]
    note = (
        "Relative L2 difference from float32 at every value of the graph. The line of float32 is its own rounding: the same model "
        "with its sums in another order."
    )
    bad = {name for name, layer in result.layers.items() if layer.bad}
    culprits = [i for i, place in enumerate(result.inside.places) if place in bad]
    drawn = chart("Relative difference, by powers of ten", result.inside.places, series, culprits=culprits)
    return f'<p class="note">{note}</p>{drawn}'


def _worst(result: Quantized) -> str:
    head = (
        "layer", "what", "alone: dB", "same class", "shift", "all but it: dB", "same class", "shift", "weights, dB", "input, dB",
        "output, dB", "cause, dB of the logits", "float32 adds, kB",
    )  # fmt: skip
    rows = []
    for name, layer in result.layers.items():
        costs = [(layer.alone.ratio, layer.alone.agreement, layer.alone.shift)]
        costs += [(layer.without.ratio, layer.without.agreement, layer.without.shift)] if layer.without else []
        figures = [text for ratio, same, shift in costs for text in (f"{ratio:.1f}", f"{same:.1%}", f"{shift:.4f}")]
        figures += [*["-"] * (6 - len(figures)), *map(_one, _tensors(layer)), _cause(layer), f"{layer.kilobytes:.1f}"]
        rows.append([f"<td>{escape(name)}</td>", f"<td>{escape(layer.what)}</td>", *map(_number, figures)])
    classes = ["wrong" if layer.bad else "" for layer in result.layers.values()]
    first = table(head, rows[:WORST], "The worst layers", classes[:WORST])
    rest = table(head, rows[WORST:], "The other layers", classes[WORST:]) if rows[WORST:] else ""
    noise = [
        (f"{name}: {layer.what}", float(f"{100 * 10 ** (-layer.alone.ratio / 20):.2g}")) for name, layer in result.layers.items()
    ]
    folded = f"<details><summary>{len(rows) - WORST} other layers</summary>{rest}</details>" if rest else ""
    title = "Noise of the logits in %, each layer alone in int8"
    return f'{bars(title, noise[:WORST])}<div class="layers">{first}{folded}</div>'


def _tried(result: Quantized) -> str:
    head = ("int8 arithmetic in", "layers", "same class", "largest difference of a probability", "size, MB", "time / float32")
    rows = []
    for t in result.trials:
        figures = (str(t.operators), f"{t.agreement:.1%}", f"{t.max_probability_diff:.4f}", f"{t.size / 1e6:.3g}", f"{t.ratio:.2f}")
        mark = " (kept)" if t.name == result.chosen else ""
        rows.append([f"<td>{escape(t.name)}{mark}</td>", *map(_number, figures)])
    return table(head, rows, "All that was tried")


def _facts(bundle: Bundle, result: Quantized) -> str:
    facts = {
        "model": f"{bundle.model}, {len(bundle.classes)} classes, {bundle.preset.crop_size} x {bundle.preset.crop_size} pixels",
        "weights": f"{bundle.weights}, SHA-256 {bundle.weights_sha256[:12]}",
        "calibrated on": f"{result.calibrated_on} pictures; ratios on {min(WITHIN, result.calibrated_on)} of them",
        "judged on": f"{result.judged_on} other pictures",
        "processor": processor_name(),
    }
    return table(
        ("", ""), [[f"<td>{escape(name)}</td>", f"<td>{escape(value)}</td>"] for name, value in facts.items()], "What was run"
    )
