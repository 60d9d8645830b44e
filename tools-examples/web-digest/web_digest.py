"""web-digest: a web page in short."""

from dataclasses import dataclass
from typing import Annotated

from page import Link, PageReader

from toolcell_sdk import Field, ToolError, http, method

_HTML = ("text/html", "application/xhtml+xml")


@dataclass
class Digest:
    """`url` is where the page was found, after redirects. `truncated`: there was more text."""

    url: str
    title: str
    description: str
    text: str
    truncated: bool
    links: list[Link]


@method
def digest(
    url: Annotated[str, Field(description="http or https.", max_length=2000, pattern="^https?://")],
    max_text_characters: Annotated[int, Field(ge=0, le=200_000)] = 5000,
    max_links: Annotated[int, Field(ge=0, le=1000)] = 50,
) -> Digest:
    """Fetches a page and digests it."""
    response = http.fetch(url, headers={"accept": ", ".join(_HTML)})
    if not response.ok:
        raise ToolError(f"{response.url} answered {response.status}", status=502)
    kind = response.header("content-type", _HTML[0]).partition(";")[0].strip().lower()
    if kind not in _HTML:
        raise ToolError(f"{response.url} is {kind}, not a web page", status=422)
    page = PageReader(response.url, max_links)
    page.feed(response.text())
    page.close()
    text = page.text
    return Digest(
        url=response.url,
        title=page.title,
        description=page.description,
        text=text[:max_text_characters],
        truncated=len(text) > max_text_characters,
        links=page.links,
    )
