"""MobileNetV3 in Paddle against torchvision's, the first client of the engine."""
