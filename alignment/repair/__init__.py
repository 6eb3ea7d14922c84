"""Corrections of a port's source: candidates made of its syntax tree and of the reference's, each tried before it is offered.

``edits`` is what a correction is; ``settings`` knows corrections of layers' settings at once; ``candidates`` makes changes of the
blamed function, ``mirror`` those under which it reads as the reference does; ``regions`` says which function that is.
"""
