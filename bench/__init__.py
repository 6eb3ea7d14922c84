"""Measures of the engine itself: known faults and what is found of them, false alarms, and other tools on the same faults."""
