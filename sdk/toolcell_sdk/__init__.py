"""toolcell_sdk: what the author of a tool needs."""
