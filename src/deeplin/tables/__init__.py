"""Tables of any format: reading them into a problem, and preparing their columns."""
