"""The command ``mnv3``: train, evaluate, predict, export, serve, convert, examine and align MobileNetV3; one file a sub-command."""
