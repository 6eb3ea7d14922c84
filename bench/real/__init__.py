"""Real, dated, silent bugs from public histories: minimal pairs, broken and fixed, and what an audit says of them."""
