"""`fs.*`: files under `/scratch`, which are gone when the run ends.

path        what a path is; where `/scratch` ends
beneath     opening below a folder without following a link, by the kernel's own rule
scratch     one run's files, under quotas
root        where scratch spaces are made, and how those of a crashed host are found
capability  the six calls
"""
