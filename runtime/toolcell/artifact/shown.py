"""Text of somebody untrusted, made fit for a message.

Owns one rule: one line, printable characters, bounded. A manifest's field name or an input's value
must not be able to fill a log or to steer a terminal.
"""

__all__ = ["shown"]


def shown(text: str, limit: int = 200) -> str:
    """At most `limit` characters of `text`, each that is not printable as `?`."""
    cut = text if len(text) <= limit else f"{text[: limit - 3]}..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
