"""Base trees: what a cell sees besides its own artifact. Read-only, content-addressed, checked.

`empty` holds nothing, `native` the C library and its loader, `python` the running interpreter with
the SDK's worker. A folder made by hand becomes a base by the lane's setting `bases`.
"""

from toolcell_oops.base.store import Base, BaseStore

__all__ = ["Base", "BaseStore"]
