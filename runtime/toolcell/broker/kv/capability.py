"""`kv.get`, `kv.set`, `kv.delete`, `kv.list` of one run.

Owns the choice of the store: the run's own, or the persistent namespace that the policy names. A
tool can't name a namespace; the operator does, in the policy.
"""

from typing import TYPE_CHECKING

from toolcell.broker.call import Call, payload_size
from toolcell.broker.interface import KvDelete, KvGet, KvList, KvSet
from toolcell.broker.kv.store import MemoryStore, Store, check_key
from toolcell.policy.envelope import KvPolicy

if TYPE_CHECKING:
    from toolcell.broker.services import BrokerServices

__all__ = ["KvCapability"]


class KvCapability:
    """The four of them, over one store that is opened on the first call."""

    def __init__(self, policy: KvPolicy, services: "BrokerServices") -> None:
        self._store: Store
        if policy.namespace:
            self._store = services.kv.open(policy.namespace, policy)
        else:
            self._store = MemoryStore(policy)

    def get(self, call: Call, params: KvGet) -> str | None:
        """Serves `kv.get`."""
        check_key(params.key)
        return self._store.get(call, params.key)

    def set(self, call: Call, params: KvSet) -> None:
        """Serves `kv.set`."""
        check_key(params.key)
        self._store.set(call, params.key, params.value)

    def delete(self, call: Call, params: KvDelete) -> bool:
        """Serves `kv.delete`."""
        check_key(params.key)
        return self._store.delete(call, params.key)

    def keys(self, call: Call, params: KvList) -> list[str]:
        """Serves `kv.list`. An answer over `max_message_bytes` is refused, never cut in silence."""
        if payload_size(params.prefix):
            check_key(params.prefix)
        return self._store.keys(call, params.prefix)

    def close(self) -> None:
        """Gives the store back."""
        self._store.close()
