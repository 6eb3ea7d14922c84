"""A list of planted training mistakes in both frameworks, and what the doctor finds of them: ``python -m tests.mistakes.run``."""
