import numpy as np
import pytest


@pytest.fixture
def world(tmp_path, constants):
    """Two groups of users, each with items of its own."""
    generator = np.random.default_rng(0)
    lines = [
        f'{user} ' + ' '.join(map(str, 10 * (user % 2) + generator.permutation(10)[:8]))
        for user in range(40)
    ]
    (tmp_path / 'data' / 'tiny').mkdir(parents=True)
    (tmp_path / 'data' / 'tiny' / 'raw.txt').write_text('\n'.join(lines))
    constants(checkpoints=tmp_path / 'checkpoints')
    return tmp_path
