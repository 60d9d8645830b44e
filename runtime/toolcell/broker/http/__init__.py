"""`http.fetch`: the way out to the network, one file per defence.

url          what a URL is, strictly; one spelling of each host
grants       scheme, host, port and method against the policy, before any lookup
resolver     names to addresses, under the deadline
addresses    which addresses may be dialled
headers      which request headers a tool may set, which response headers it gets
credentials  secrets that the broker adds and the tool never sees
wire         one connection: dialled to the checked address, under one deadline and byte caps
exchange     one request and its response over a wire
body         content codings and the caps on what comes out of them
fetch        the order of all that, and redirects
"""
