"""Trust: whose signature counts, from when, until when, and who lost that."""
