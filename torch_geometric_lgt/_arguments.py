import difflib
import inspect
import operator
import reprlib
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

# further names that PyG computes, or whose values it changes in a batch
RESERVED = ('adj_t', 'face', 'keys', 'num_nodes', 'ptr', 'size')


def nearest_name(name: Any, names: Iterable[Any]) -> str:
    r"""Returns the end of a message about an unknown :obj:`name`, which asks for the most similar
    text among :obj:`names`, whatever the case of letters. The shortest text that begins with a name
    of three letters or more is the most similar one. Returns an empty text if none is similar."""
    texts = {text.casefold(): text for text in names if isinstance(text, str)}
    start = str(name).casefold()
    longer = sorted((text for text in texts if text.startswith(start)), key=len)
    nearest = longer if len(start) > 2 and longer else difflib.get_close_matches(start, texts, 1)
    return f'; did you mean {texts[nearest[0]]!r}?' if nearest else ''


def check_choice(
    name: str, value: Any, choices: Iterable[Any], others: str = '', hint: str = ''
) -> None:
    r"""Checks that the argument called :obj:`name` is one of :obj:`choices`. The message ends in
    :obj:`hint`, or asks for the most similar name. The text :obj:`others` follows the choices, such
    as ``' or a layer'``.

    Raises:
        ValueError: If :obj:`value` is anything else.
    """
    choices = tuple(choices)
    if value not in choices:
        raise ValueError(
            f"'{name}' must be one of {', '.join(map(repr, choices))}{others} (got {value!r})"
            f'{hint or nearest_name(value, choices)}'
        )


def is_whole(value: Any, least: int) -> bool:
    r"""Tells whether :obj:`value` is a whole number of at least :obj:`least`, of Python, NumPy or
    PyTorch. A boolean is no number."""
    try:
        return not isinstance(value, bool) and operator.index(value) >= least
    except TypeError:
        return False


def check_whole(name: str, value: Any, least: int) -> None:
    r"""Checks that the argument called :obj:`name` is a whole number of at least :obj:`least`
    (:meth:`is_whole`).

    Raises:
        ValueError: If :obj:`value` is anything else.
    """
    if not is_whole(value, least):
        shown = reprlib.repr(value)  # a few letters of a tensor
        raise ValueError(f"'{name}' must be at least {least}, a whole number (got {shown})")


def check_function(name: str, function: Any, of: str, *arguments: Any) -> None:
    r"""Checks that the argument called :obj:`name` is a function that takes :obj:`arguments`. The
    text :obj:`of` says in the message what they are.

    Raises:
        ValueError: If :obj:`function` is no function, or takes other arguments.
    """
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        shown = getattr(function, '__name__', reprlib.repr(function))
        raise ValueError(f"'{name}' must be a function of {of} (got {shown}: {error})") from error


def check_number(name: str, value: Any) -> None:
    r"""Checks that the argument called :obj:`name` is a real number of Python, NumPy or PyTorch.

    Raises:
        ValueError: If :obj:`value` is anything else, such as a text or :obj:`None`.
    """
    if not isinstance(value, Real) and not (isinstance(value, Tensor) and value.numel() == 1):
        raise ValueError(f"'{name}' must be a number (got {reprlib.repr(value)})")


def check_flags(**flags: bool) -> None:
    r"""Raises a ValueError unless each keyword is :obj:`True` or :obj:`False` of Python or
    NumPy."""
    for name, flag in flags.items():
        if not isinstance(flag, (bool, np.bool_)):
            raise ValueError(f"'{name}' must be True or False (got {flag!r})")


def check_keywords(**arguments: Any) -> None:
    r"""Raises a ValueError unless each keyword is a dictionary of arguments or :obj:`None`."""
    for name, value in arguments.items():
        if not (value is None or isinstance(value, Mapping)):
            raise ValueError(f"'{name}' must be a dictionary of arguments (got {value!r})")


def check_counts(name: str, counts: Any) -> None:
    r"""Checks that the argument called :obj:`name` is a sequence of whole numbers, one for each
    hop.

    Raises:
        ValueError: If :obj:`counts` is anything else.
    """
    try:
        for count in counts:
            operator.index(count)
    except TypeError as error:
        raise ValueError(
            f"'{name}' must be a list of whole numbers, one for each hop (got {counts!r})"
        ) from error


def check_ids(name: str, ids: Tensor | np.ndarray, num_nodes: int) -> None:
    r"""Checks that the argument called :obj:`name` has only ids of :obj:`num_nodes` nodes. The
    values of a tensor on a GPU are read.

    Raises:
        ValueError: If an id is negative, or at least :obj:`num_nodes`.
    """
    if len(ids) == 0:
        return
    least, most = int(ids.min()), int(ids.max())
    if least < 0 or most >= num_nodes:
        raise ValueError(
            f"'{name}' must hold ids from 0 to {num_nodes - 1} (got {least} to {most})"
        )


def check_no_mask_of_numbers(
    name: str, ids: Tensor, num_nodes: int | None, fix: str = 'convert it with bool()'
) -> None:
    r"""Raises a ValueError, which ends in the :obj:`fix`, if the argument called :obj:`name` is a
    mask in whole numbers, as older files have it: 0 or 1 for each of more than two nodes. The
    values of a tensor on a GPU are read if there are as many as nodes."""
    if (
        ids.dtype != torch.bool
        and ids.numel() > 2
        and ids.numel() == num_nodes
        and int(ids.min()) >= 0
        and int(ids.max()) <= 1
    ):
        raise ValueError(
            f"'{name}' must hold ids of nodes or be a mask of bools (got a 0 or 1 for each of "
            f'{num_nodes} nodes in {ids.dtype}); {fix}'
        )


def check_attribute_name(argument: str, name: Any) -> None:
    r"""Checks that a node or edge attribute of PyG may be called :obj:`name`; messages begin with
    the text :obj:`argument`, such as ``'attr_name'`` in quotes.

    In a batch, PyG adds numbers to attributes with ``batch`` or ``index`` in their names and to
    ``face``, and joins some of them side by side.

    Raises:
        ValueError: If the name is no identifier, or PyG reads a meaning from it.
    """
    if not isinstance(name, str) or not name.isidentifier() or name.startswith('_'):
        raise ValueError(
            f"{argument} must be a name of letters, digits and '_' that begins with a letter "
            f'(got {name!r})'
        )
    if 'batch' in name or 'index' in name or name in RESERVED:
        raise ValueError(
            f"{argument} must have neither 'batch' nor 'index' in it, nor be one of "
            f'{", ".join(RESERVED)}: PyG reads a meaning from these names (got {name!r}); choose '
            "another, such as 'encoding'"
        )
