"""The launcher, from Python's side: where the program is, how it is started, what it says.

`native/PLAN.md` is the protocol. Policy stays on this side: the launcher gets finished plans.
"""
