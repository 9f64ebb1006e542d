import torch
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn.inits import reset

from torch_geometric_lgt.functional import kernel_attention
from torch_geometric_lgt.nn import check_features
from torch_geometric_lgt.testing.checks import check_layer


class LaplaceAttention(torch.nn.Module):
    """Attends to all nodes with the features exp(-abs(x)), given by their logarithms."""

    def __init__(self, in_channels: int, out_channels: int, heads: int = 1) -> None:
        super().__init__()
        self.in_channels, self.heads = in_channels, heads
        self.lin_query = Linear(in_channels, out_channels)
        self.lin_key = Linear(in_channels, out_channels)
        self.lin_value = Linear(in_channels, out_channels)

    def reset_parameters(self) -> None:
        for module in self.children():
            reset(module)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | None = None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        check_features(x, self.lin_query, self.in_channels)
        q, k, v = (
            lin(x).unflatten(-1, (self.heads, -1))  # [N, H, C]
            for lin in (self.lin_query, self.lin_key, self.lin_value)
        )
        return kernel_attention(
            -q.abs(), -k.abs(), v, 'logits', batch=batch, batch_size=batch_size
        ).flatten(1)


if __name__ == '__main__':
    check_layer(lambda: LaplaceAttention(6, 8, heads=2), in_channels=6)
