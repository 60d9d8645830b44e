"""Versions and version ranges.

Owns their order and their grammar. Knows no registry. The grammar is npm's where npm and Python
differ (https://github.com/npm/node-semver#ranges), with Python's commas and `==` accepted.

| range | means |
|---|---|
| empty, `*` | the newest release |
| `1.2.3`, `=1.2.3`, `==1.2.3` | exactly this |
| `1.2`, `1.2.x`, `1.2.*`, `1` | any that begins so |
| `^1.2.3` | `>=1.2.3, <2`; `^0.2.3`: `>=0.2.3, <0.3`; `^0.0.3`: `>=0.0.3, <0.0.4` |
| `~1.2.3`, `~1.2` | `>=1.2.3, <1.3` |
| `>=1, <2`, `>1.2 !=1.4.0` | all of them hold |

A pre-release (`1.2.0-rc1`) is taken only by a range that names a pre-release of the same
`MAJOR.MINOR.PATCH`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from toolcell.errors import ConfigError

__all__ = ["Version", "VersionRange", "parse_range", "parse_version"]

MAX_RANGE_LENGTH = 200
_FINAL = 3
_STAGES = {"a": 0, "b": 1, "rc": 2}

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-(a|b|rc)(\d{1,8}))?", re.ASCII)
_TERM = re.compile(
    r"(?P<op>\^|~|>=|<=|==|!=|=|>|<|)\s*v?(?:\*|x|(?P<major>\d{1,9})"
    r"(?:\.(?:\*|x|(?P<minor>\d{1,9})(?:\.(?:\*|x|(?P<patch>\d{1,9})"
    r"(?:-(?P<stage>a|b|rc)(?P<serial>\d{1,8}))?))?))?)(?=[\s,]|\Z)",
    re.ASCII,
)
_BETWEEN = re.compile(r"\s*,\s*|\s+")


class Version(NamedTuple):
    """A version; the order of the tuples is the order of the versions."""

    major: int
    minor: int
    patch: int
    stage: int = _FINAL
    serial: int = 0

    @property
    def is_prerelease(self) -> bool:
        """Whether it comes before a release of the same figures."""
        return self.stage != _FINAL

    @property
    def release(self) -> tuple[int, int, int]:
        """The figures without the pre-release."""
        return self.major, self.minor, self.patch


class VersionRange(NamedTuple):
    """What a range admits. `prereleases_of`: the releases whose pre-releases it names."""

    text: str
    terms: tuple[Callable[[Version], bool], ...]
    prereleases_of: frozenset[tuple[int, int, int]]

    def admits(self, version: Version) -> bool:
        """Whether `version` is in the range."""
        if version.is_prerelease and version.release not in self.prereleases_of:
            return False
        return all(term(version) for term in self.terms)


def parse_version(text: str) -> Version:
    """`text` as a version. :class:`ConfigError` where it is none."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{text[:60]!a} is not a version", remedy="write MAJOR.MINOR.PATCH, like 1.4.0"
        )
    major, minor, patch, stage, serial = found.groups()
    release = int(major), int(minor), int(patch)
    return Version(*release, _STAGES[stage], int(serial)) if stage else Version(*release)


@lru_cache(maxsize=1024)
def parse_range(text: str) -> VersionRange:
    """`text` as a range. :class:`ConfigError` where it is none."""
    rest = text.strip()
    if len(rest) > MAX_RANGE_LENGTH:
        raise ConfigError(
            f"a version range has {len(rest)} characters; the limit is {MAX_RANGE_LENGTH}",
            remedy="write a shorter one",
        )
    terms: list[Callable[[Version], bool]] = []
    named: set[tuple[int, int, int]] = set()
    position = 0
    while position < len(rest):
        found = _TERM.match(rest, position)
        if found is None or not found[0]:
            raise ConfigError(
                f"{rest[position : position + 40]!a} is not a version range",
                remedy="write one like 1.4.0, ^1.2, ~1.2, or >=1, <2",
            )
        terms.append(_term(found, named))
        position = found.end()
        gap = _BETWEEN.match(rest, position)
        position = gap.end() if gap else position
    return VersionRange(rest, tuple(terms), frozenset(named))


def _term(found: re.Match[str], named: set[tuple[int, int, int]]) -> Callable[[Version], bool]:
    figures = [int(found[part]) for part in ("major", "minor", "patch") if found[part]]
    low = Version(*[*figures, 0, 0, 0][:3])
    if found["stage"]:
        low = low._replace(stage=_STAGES[found["stage"]], serial=int(found["serial"]))
        named.add(low.release)
    if not figures:
        return lambda _: True
    after = _after(found["op"], low, len(figures))
    below = low if len(figures) == len(low.release) else _before(low)
    operators: dict[str, Callable[[Version], bool]] = {
        ">=": lambda version: version >= low,
        "<": lambda version: version < below,
        ">": lambda version: version >= after,
        "<=": lambda version: version < after,
        "!=": lambda version: not low <= version < after,
    }
    return operators.get(found["op"], lambda version: low <= version < after)


def _before(low: Version) -> Version:
    """The place in the order just before the first pre-release of `low`."""
    return Version(*low.release, 0, -1)


def _after(operator: str, low: Version, given: int) -> Version:
    """The first place past what `operator` and the `given` figures of `low` span."""
    major, minor, patch = low.release
    if operator == "~":
        given = min(given, 2)
    elif operator == "^":
        given = next((i + 1 for i, figure in enumerate(low.release[:given]) if figure), given)
    elif given == len(low.release):
        return low._replace(serial=low.serial + 1)
    bumped = ((major + 1, 0, 0), (major, minor + 1, 0), (major, minor, patch + 1))[given - 1]
    return _before(Version(*bumped))
