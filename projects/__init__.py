"""Clients of the alignment engine, a folder each: python -m alignment run projects/NAME/project.py"""
