"""Review: everything that is wrong with a policy file, and what may not be meant.

Owns what `toolcell policy check` finds. It grants nothing and stops at no first problem.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from toolcell.errors import ConfigError
from toolcell.policy.advice import advice
from toolcell.policy.approvals import missing_approvals
from toolcell.policy.classes import Catalog
from toolcell.policy.document import Problem
from toolcell.policy.files import policy_files, read_policy_file
from toolcell.policy.library import beside, together

__all__ = ["Review", "review"]


class Review(Struct, frozen=True, kw_only=True):
    """What `toolcell policy check` has to say of one file."""

    path: Path
    classes: tuple[str, ...] = ()
    masks: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def review(paths: Sequence[Path], folder: Path | None) -> list[Review]:
    """Reads each file to its end, next to the home's policies in `folder`.

    A missing approval is a problem here, though only a call is stopped by it. What is wrong with
    the home's other files is not this file's problem: what can be read of them is taken.
    """
    kept = []
    for path in policy_files(folder) if folder is not None else ():
        with suppress(ConfigError):
            kept.append(read_policy_file(path, ours=True))
    home, _ = together(kept)
    return [_review(path, home, ours=path.parent == folder) for path in paths]


def _review(path: Path, home: Catalog, *, ours: bool) -> Review:
    try:
        file = read_policy_file(path, ours=ours)
    except ConfigError as error:
        problem = Problem(where=str(path), message=error.message, remedy=error.remedy)
        return Review(path=path, problems=(problem,))
    document, catalog, problems = beside(home, file)
    if not document.names() and not problems:
        remedy = "write fields, [classes.NAME] or [masks.NAME]"
        problems.append(Problem(where=str(path), message="it holds no policy", remedy=remedy))
    notes = []
    for name in (spec.name for spec in document.classes if spec.name in catalog.grants):
        envelope = catalog.grants[name].envelope
        notes += [f"class `{name}`: {note}" for note in advice(envelope)]
        for lack in missing_approvals(envelope):
            remedy = "add [[approvals]] with grants, who, when, why to the class"
            message = f"class `{name}`: {lack}"
            problems.append(Problem(where=str(path), message=message, remedy=remedy))
    return Review(
        path=path,
        classes=tuple(spec.name for spec in document.classes),
        masks=tuple(mask.name for mask in document.masks),
        problems=tuple(problems),
        notes=tuple(notes),
    )
