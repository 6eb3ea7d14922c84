"""Any two models that somebody can name, audited: ``python -m alignment audit``."""
