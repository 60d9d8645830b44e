"""Policy: envelopes, classes and masks, composition, isolation selection."""
