import pytest
import torch


@pytest.fixture
def root(tmp_path):
    """Twelve users with five of 30 items each, in the layout of LightGCN."""
    folder = tmp_path / 'data' / 'own'
    folder.mkdir(parents=True)
    items = [
        torch.randperm(30, generator=torch.Generator().manual_seed(user)).tolist()
        for user in range(12)
    ]
    for part, those in (('train', slice(0, 3)), ('test', slice(3, 5))):
        (folder / f'{part}.txt').write_text(
            ''.join(
                f'{user} {" ".join(map(str, user_items[those]))}\n'
                for user, user_items in enumerate(items)
            )
        )
    return str(tmp_path / 'data')
