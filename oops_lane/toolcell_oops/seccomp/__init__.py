"""seccomp: an OCI/Docker JSON profile in, BPF for the kernel out.

`profile` reads, `compiler` compiles, `profiles/` holds the two of our own: `strict`, an allow-list
and the default, and `baseline`, a deny-list.
"""

from toolcell_oops.seccomp.compiler import compile_profile
from toolcell_oops.seccomp.profile import SeccompProfile, load_profile

__all__ = ["SeccompProfile", "compile_profile", "load_profile"]
