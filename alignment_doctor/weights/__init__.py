"""Two states of one model compared: what moved, what did not, what shrank or exploded."""
