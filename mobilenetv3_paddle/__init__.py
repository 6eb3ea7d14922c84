"""MobileNetV3 in PaddlePaddle: the reproduction. Never imports torch."""
