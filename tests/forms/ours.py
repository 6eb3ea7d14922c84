"""A port of the same numbers in another form: a list of blocks, which are told from outside whether they have a shortcut."""

from paddle import nn


class Block(nn.Layer):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2D(width, width, 3, padding=1, bias_attr=False)
        self.norm = nn.BatchNorm2D(width)
        self.act = nn.ReLU6()
        self.out = nn.Conv2D(width, width, 1)

    def forward(self, x, shortcut):
        y = self.out(self.act(self.norm(self.conv(x))))
        return x + y if shortcut else y


class Net(nn.Layer):
    SHORTCUTS = (False, True, True)

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2D(3, 8, 3, 2, 1)
        self.blocks = nn.LayerList([Block(8) for _ in self.SHORTCUTS])
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        for block, shortcut in zip(self.blocks, self.SHORTCUTS, strict=True):
            x = block(x, shortcut)
        return self.head(x.mean([2, 3]))
