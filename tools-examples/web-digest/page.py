"""Reads HTML: title, description, text and links. Takes any input, however broken."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

_IGNORED = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "select"})
_AROUND = frozenset({"nav", "header", "footer", "aside", "form"})
_MAIN = frozenset({"main", "article"})
_BREAKS = frozenset(
    {
        "p",
        "div",
        "br",
        "li",
        "tr",
        "section",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "pre",
        "blockquote",
    }
)
_VOID = frozenset({"br", "img", "meta", "link", "input", "hr", "base", "source", "wbr", "col"})
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r" *\n\s*")


@dataclass
class Link:
    """An absolute http or https address, and the text that leads there."""

    url: str
    text: str


class PageReader(HTMLParser):
    """One page. Feed it, close it, then read the properties."""

    def __init__(self, base_url: str, max_links: int) -> None:
        super().__init__(convert_charrefs=True)
        self.description = ""
        self.links: list[Link] = []
        self._base = base_url
        self._max_links = max_links
        self._seen: set[str] = set()
        self._title: list[str] = []
        self._title_ended = False
        self._main: list[str] = []
        self._rest: list[str] = []
        self._link: tuple[str, list[str]] | None = None
        self._depth = dict.fromkeys(("ignored", "around", "main", "title"), 0)

    @property
    def title(self) -> str:
        """The text of the first `<title>`."""
        return _tidy("".join(self._title)).replace("\n", " ")

    @property
    def text(self) -> str:
        """The main text, a line per block."""
        main = _tidy("".join(self._main))
        return main or _tidy("".join(self._rest))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Counts what is open, and takes what an element says of itself."""
        attributes = dict(attrs)
        if tag in _BREAKS:
            self._write("\n")
        if tag == "meta":
            self._meta(attributes)
        elif tag == "base" and attributes.get("href"):
            self._base = self._absolute(attributes["href"] or "") or self._base
        elif tag == "a" and attributes.get("href"):
            self._close_link()
            self._link = (attributes["href"] or "", [])
        if tag not in _VOID:
            self._count(tag, 1)

    def handle_endtag(self, tag: str) -> None:
        """Closes a link, or what was counted."""
        if tag == "a":
            self._close_link()
        if tag == "title":
            self._title_ended = True
        if tag in _BREAKS:
            self._write("\n")
        self._count(tag, -1)

    def handle_data(self, data: str) -> None:
        """Text, to wherever it belongs."""
        if not self._depth["title"]:
            self._write(data)
        elif not self._title_ended:
            self._title.append(data)

    def close(self) -> None:
        """Ends the page, with a link still open or not."""
        super().close()
        self._close_link()

    def _count(self, tag: str, step: int) -> None:
        names = {"ignored": _IGNORED, "around": _AROUND, "main": _MAIN, "title": {"title"}}
        for name, tags in names.items():
            if tag in tags:
                # A page may close more than it opened.
                self._depth[name] = max(0, self._depth[name] + step)

    def _write(self, data: str) -> None:
        if self._depth["ignored"]:
            return
        if self._link is not None:
            self._link[1].append(data)
        if self._depth["main"]:
            self._main.append(data)
        elif not self._depth["around"]:
            self._rest.append(data)

    def _meta(self, attributes: dict[str, str | None]) -> None:
        name = attributes.get("name") or attributes.get("property") or ""
        if name.lower() in {"description", "og:description"} and not self.description:
            self.description = _tidy(attributes.get("content") or "")

    def _close_link(self) -> None:
        if self._link is None:
            return
        href, parts = self._link
        self._link = None
        url = self._absolute(href)
        if url and url not in self._seen and len(self.links) < self._max_links:
            self._seen.add(url)
            self.links.append(Link(url, _tidy("".join(parts)).replace("\n", " ")))

    def _absolute(self, href: str) -> str:
        try:
            url = urljoin(self._base, href.strip()).partition("#")[0]
            parts = urlsplit(url)
        except ValueError:
            return ""
        return url if parts.scheme in {"http", "https"} and parts.netloc else ""


def _tidy(text: str) -> str:
    return _LINES.sub("\n", _SPACES.sub(" ", text)).strip()
