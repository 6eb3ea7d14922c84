"""One recommendation at a time, with the gain that the measurement lets expect."""

from __future__ import annotations

from dataclasses import dataclass

from alignment_doctor.profile.subject import Profile

WORTH = 0.05  # share of an update; less is within what two measurements differ by


@dataclass(frozen=True)
class Advice:
    """What to change.

    Attributes:
        gain: share of an update's time that it saves, 0..1.
        text: with the settings.
    """

    gain: float
    text: str


def advice(profile: Profile) -> Advice | None:
    """The change with the largest expected gain; None where none is worth it."""
    made = [one for one in (_workers(profile), _gap(profile)) if one is not None and one.gain >= WORTH]
    return max(made, key=lambda one: one.gain, default=None)


def _workers(profile: Profile) -> Advice | None:
    """Enough workers to make the pictures of an update while the one before computes."""
    config = profile.config
    work = profile.picture * config.batch_size * config.accumulate
    computing = profile.whole - profile.typical("data wait")
    free = profile.processors if profile.processors > 1 else 0  # with one processor a worker takes its time from the update
    wanted = min(free, int(work / max(computing, 1e-9)) + 1)
    if wanted <= config.workers:
        return None
    expected = max(computing, work / wanted)
    return Advice(
        1 - expected / profile.whole,
        f"--workers {wanted}: the pictures of an update take {work * 1e3:.0f} ms in one process and the rest of it "
        f"{computing * 1e3:.0f} ms; an update of {profile.whole * 1e3:.0f} ms may then take {expected * 1e3:.0f} ms",
    )


def _gap(profile: Profile) -> Advice | None:
    """The moving average less often."""
    if not profile.config.ema_decay or profile.config.ema_every > 1:
        return None
    gap = profile.typical("iteration gap")
    said = f"--ema-every 10 with --ema-decay to its tenth power: the average is taken in the gap of {gap * 1e3:.1f} ms"
    return Advice(0.9 * gap / profile.whole, said)
