"""toolcell: runs tools that nobody has to trust, every call in its own cell."""
