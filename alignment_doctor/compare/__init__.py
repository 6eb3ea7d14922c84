"""Two runs of the same training compared by their logs: where they part, and whether more than repeated runs do."""
