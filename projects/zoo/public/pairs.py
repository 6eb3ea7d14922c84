"""All public pairs, by their names."""

from __future__ import annotations

from projects.zoo.public import paddledetection, paddlemix, paddlenlp, paddlespeech, paddlevit

_PROJECTS = (paddlenlp, paddlemix, paddlevit, paddlespeech, paddledetection)
PAIRS = {pair.name: pair for project in _PROJECTS for pair in project.PAIRS}
