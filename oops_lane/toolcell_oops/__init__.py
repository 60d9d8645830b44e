"""The oops lane: native and interpreted programs in short-lived Linux processes.

Namespaces, cgroups, seccomp, Landlock and rlimits around each call, set up by the launcher in
`native/`; the same session, broker and policy as in the wasi lane. `docs/oops.md` has the picture.
"""
