"""The capability clients: what a tool may ask of its host, as plain Python.

One module per WIT interface. Each call goes through `toolcell_sdk.transport`, each refusal is a
`CapabilityError`. Imported inside components: standard library only.
"""
