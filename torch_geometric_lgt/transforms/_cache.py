import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch


def cache_path(cache_dir: str | os.PathLike, name: str, *parts: Any) -> Path:
    r"""Returns the file in :obj:`cache_dir` for the results of a transform called :obj:`name`.

    The file is named by a checksum of :obj:`parts`, arrays or CPU tensors of whole numbers that
    determine the results, and of the default dtype.
    """
    digests = [hashlib.sha256(np.asarray(x).astype(np.int64).tobytes()).digest() for x in parts]
    key = hashlib.sha256(b''.join(digests) + str(torch.get_default_dtype()).encode()).hexdigest()
    return Path(cache_dir) / f'{name}-{key[:32]}.safetensors'
