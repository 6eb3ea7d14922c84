"""Pairs of small networks, one for each kind of layer, with wrong settings of it."""
