"""MobileNetV3 in PaddlePaddle: the reproduction. Never imports torch."""

import warnings

# Said at each import of Paddle; it concerns those who compile Paddle operators of their own.
warnings.filterwarnings("ignore", message=".*No ccache found.*")
