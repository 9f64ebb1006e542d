r"""Says which names there are where a user gave an unknown one."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, names: Iterable[str]) -> str | None:
    r"""Returns the known name that is spelled most like a name, whatever the case of its letters,
    or :obj:`None` if none is like it."""
    by_lower_case = {known.lower(): known for known in names}
    matches = get_close_matches(name.lower(), by_lower_case, 1)
    return by_lower_case[matches[0]] if matches else None


def hint(name: str, names: Iterable[str]) -> str:
    r"""Returns the end of a message about an unknown name: the nearest name, and all there are."""
    names = list(names)
    near = nearest(name, names)
    question = '' if near is None else f', did you mean {near!r}?'
    return f'{question} (there are {", ".join(names)})'


def unknown(name: str, names: Iterable[str], kind: str = 'name') -> str:
    r"""Says that a name is unknown, which known name is nearest, and which there are."""
    return f'unknown {kind} {name!r}{hint(name, names)}'
