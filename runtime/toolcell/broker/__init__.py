"""The broker: the one way out of a cell, the same for every lane.

Deny by default. :class:`BrokerServices` lives as long as the runtime and holds what outlives a
call; :class:`InvocationBroker` lives as long as one call and holds what must not. What crosses is
in `toolcell.broker.interface`. A capability's own module, with the libraries that it needs, is
imported when it is first used.
"""

from toolcell.broker.call import BrokerUsage
from toolcell.broker.invocation import InvocationBroker
from toolcell.broker.services import BrokerServices

__all__ = ["BrokerServices", "BrokerUsage", "InvocationBroker"]
