"""Dumps that other tools write: a file each, found by what its folder holds. Reading them runs no code of theirs."""
