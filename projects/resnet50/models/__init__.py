"""ResNet-18 and -50 with the stem of ImageNet or of CIFAR, in MindSpore, Paddle and PyTorch: a file each, equal names."""
