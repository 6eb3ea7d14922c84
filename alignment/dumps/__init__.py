"""One side of an audit, written to a folder where the other framework is not; and the audit of two such folders."""
