"""The stages of a build, in the order that `toolcell_sdk.build` runs them.

staging      copies the sources, with bounds
compiler     runs componentize-py in a child
description  reads what the component says of its methods
"""
