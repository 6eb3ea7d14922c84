"""The whole training loop against a plain script: see ``projects.witnesses.loop.cases``."""
