import torch
from torch import Tensor

from torch_geometric_lgt.nn import KernelAttentionConv


class LearnedMap(torch.nn.Module):
    r"""Maps queries and keys ``[N, H, C]`` to positive features ``[N, H, M]`` by a network."""

    def __init__(self, channels: int, num_features: int) -> None:
        super().__init__()
        self.channels = channels
        self.lin = torch.nn.Linear(channels, num_features)

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.softplus(self.lin(x)) + 1e-4


conv = KernelAttentionConv(16, 32, heads=4, feature_map=LearnedMap(8, 12))
out = conv(torch.randn(100, 16))  # [100, 32]
