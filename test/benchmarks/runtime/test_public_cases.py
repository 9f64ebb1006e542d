import sys

import pytest

from benchmarks.runtime import layers
from benchmarks.runtime.public_cases import FILES, PUBLIC_CASES

CONFIG = {'num_nodes': 300, 'channels': 8, 'heads': 1, 'repeats': 1, 'device': 'cpu'}
LAYER = """
import torch

class {name}(torch.nn.Module):
    def __init__(self, in_channels, out_channels, num_heads, **options):
        super().__init__()
        self.Wq, self.Wk, self.Wv = (torch.nn.Linear(in_channels, out_channels) for _ in range(3))

    def forward(self, x, source):
        q, k, v = self.Wq(x), self.Wk(x), self.Wv(x)
        weight = 1 + (q / q.norm()) @ (k / k.norm()).t()
        {weights}
        return weight @ v / weight.sum(1, keepdim=True)
"""
GUMBEL = """
import torch

def softmax_kernel_transformation():
    pass

def kernelized_gumbel_softmax(q, k, v, kernel, projection, K, tau, return_weight):
    noise = -torch.empty(k.shape[1], 1, k.shape[2], K).exponential_().log() / tau
    def log_features(x):
        x = x[0] / tau**.5 / x.shape[-1]**.25
        return x @ projection.t() - x.square().sum(-1, keepdim=True) / 2
    log = torch.logsumexp(log_features(q)[:, None] + log_features(k)[None], -1)
    weight = (log[..., None] + noise[None, :, 0]).softmax(1)
    return torch.einsum('nlhk,lhd->nhd', weight, v[0])[None] / K
"""
PROGRAMS = {
    'nodeformer': GUMBEL,
    'difformer': LAYER.format(name='DIFFormerConv', weights=''),
    'sgformer': LAYER.format(
        name='TransConvLayer', weights='weight = (weight - 1) + len(x) * torch.eye(len(x))'
    ),
}


@pytest.fixture
def clones(tmp_path):
    for name, text in PROGRAMS.items():
        path = tmp_path / FILES[name]
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize('case', PUBLIC_CASES)
def test_programs_from_clones_are_measured(case, clones, monkeypatch):
    monkeypatch.setattr(layers, 'limit_memory', lambda gib: None)
    config = CONFIG | {'public': str(clones)}
    layers.check(case, config)
    assert all(
        len(layers.work(case, method, config)['forward_backward']) == 1 for method in layers.METHODS
    )


@pytest.mark.parametrize('case', PUBLIC_CASES)
def test_programs_that_compute_something_else_are_refused(case, clones):
    path = clones / FILES[case.removeprefix('public-')]
    path.write_text(path.read_text().replace('q.norm()', '1').replace('tau**.5', '1'))
    with pytest.raises(
        RuntimeError, match=f'the peer of {case} differs from what it should compute by'
    ):
        layers.check(case, CONFIG | {'public': str(clones)})


def test_a_missing_clone_is_named(tmp_path, monkeypatch, capsys):
    with pytest.raises(
        FileNotFoundError,
        match=r'SGFormer/large/ours.py is missing; git clone https://github.com/qitianwu/SGFormer$',
    ):
        layers.check('public-sgformer', CONFIG | {'public': str(tmp_path)})
    monkeypatch.setattr(sys, 'argv', ['layers', '--cases', 'public-sgformer'])
    with pytest.raises(SystemExit):
        layers.main()
    assert (
        "the public cases need --public, a folder with clones of the authors' programs"
        in capsys.readouterr().err
    )
