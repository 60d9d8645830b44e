"""toolcell_wasi: the wasi lane, a WASI 0.2 host and its engine."""
