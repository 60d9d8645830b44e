"""The out-of-process lane: native and legacy artifacts in a short-lived Linux process.

This package holds the lane's place in the house and its import direction. It registers no lane:
a call that asks for `oops` is refused with status 503 until the launcher lands.
"""
