import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import AttentionMemory, DIFFormer

pytestmark = pytest.mark.cuda


def test_a_memory_is_loaded_to_the_device_of_the_model(device, tmp_path):
    data = Data(x=torch.randn(50, 5), edge_index=torch.randint(50, (2, 200)))
    model, nodes = DIFFormer(5, 8, 3).to(device), torch.arange(9)
    here = nodes.to(device)
    memory = model.attention_memory(NeighborLoader(data, [-1], batch_size=16))
    memory.save(tmp_path / 'memory')
    for place in (device, torch.device('cpu')):
        loaded = AttentionMemory.load(tmp_path / 'memory', DIFFormer(5, 8, 3).to(place))
        for actual, expected in zip(loaded.without(here), memory.without(nodes), strict=True):
            assert actual.sums.device.type == place.type
            torch.testing.assert_close(
                actual.sums.cpu(), expected.sums.cpu(), rtol=1e-10, atol=1e-10
            )
