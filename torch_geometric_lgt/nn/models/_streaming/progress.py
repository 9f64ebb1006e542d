import json
import re
from typing import NamedTuple

PROGRESS = 'progress.json'
FILE_NAME = re.compile(
    r'((layer|local|noise|state|memory)-\d+|degrees|local-degrees|scores)'
    r'((\.\d+)?\.bin|\.safetensors)'
)


class Progress(NamedTuple):
    r"""Stores how far a run is, the content of the file ``progress.json`` in its folder.

    Attributes:
        key (str): A text that identifies the model and the graph of the run.
        done (dict): The number of finished rows by name of array or state.
        sums (dict): The SHA-256 of the finished rows by name of array.
        files (list): The names of all files that the run has created.
    """

    key: str
    done: dict[str, int]
    sums: dict[str, str]
    files: list[str]


def parse_progress(content: bytes, num_nodes: int) -> Progress:
    r"""Converts :obj:`content`, the JSON bytes of a progress file, to the progress of a run with
    :obj:`num_nodes` nodes.

    Raises:
        ValueError: If a value is missing, of another type or out of range, or a file has a name
            that no run uses.
    """
    values = json.loads(content)
    if not isinstance(values, dict) or values.keys() != {*Progress._fields}:
        raise ValueError(f'it must be an object with {", ".join(Progress._fields)}')
    progress = Progress(**values)
    if not isinstance(progress.key, str) or not all(
        isinstance(value, dict) for value in (progress.done, progress.sums)
    ):
        raise ValueError("'key' must be text, 'done' and 'sums' objects")
    if any(type(rows) is not int or not 0 <= rows <= num_nodes for rows in progress.done.values()):
        raise ValueError(f"'done' must have numbers from 0 to {num_nodes} (got {progress.done})")
    if not all(isinstance(value, str) for value in progress.sums.values()):
        raise ValueError(f"'sums' must have texts (got {progress.sums})")
    if not isinstance(progress.files, list) or not all(
        isinstance(name, str) and FILE_NAME.fullmatch(name) for name in progress.files
    ):
        raise ValueError(f"'files' must have names of arrays and states (got {progress.files})")
    return progress
