"""Proof that a ported model is its reference: frameworks, projects, steps, localisation, reports. It knows no model."""
