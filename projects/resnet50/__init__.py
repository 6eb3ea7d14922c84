"""paddle.vision's ResNet-50 against torchvision's."""
