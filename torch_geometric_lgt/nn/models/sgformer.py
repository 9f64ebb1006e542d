# N nodes, D hidden channels, H heads.
import torch
from torch import Tensor
from torch_geometric.nn import GCN

from torch_geometric_lgt.nn.conv import SGFormerConv
from torch_geometric_lgt.nn.models._backbone import Backbone, Edges


class SGFormer(Backbone):
    r"""The model of `"SGFormer: Simplifying and Empowering Transformers for Large-Graph Representations"
    <https://arxiv.org/abs/2306.10759>`_: one layer of simple global attention beside a graph neural network,

    .. math::
        \mathbf{Z} = \beta \, \mathrm{SGFormerConv}(\mathbf{Z}^{(0)}) + (1 - \beta) \, \mathbf{Z}^{(0)}, \qquad
        \mathbf{Y} = f \left( (1 - \alpha) \, \mathbf{Z} + \alpha \, \mathrm{GNN}(\mathbf{Z}^{(0)}, \mathbf{A}) \right).

    Differs from :class:`torch_geometric.nn.models.SGFormer`, which has row norms in the attention, fixed shares of the residual, its own
    network over the edges and logarithms of probabilities as output, and whose outputs depend on what else is in the batch.
    As in the authors' code, :math:`\mathbf{Z}` is normalised.

    Args:
        in_channels (int): Size of each input sample.
        hidden_channels (int): Size of each hidden sample.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of attention layers. (default: :obj:`1`)
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        norm (str, optional): :obj:`"frobenius"` or :obj:`"row"`, see :class:`~torch_geometric_lgt.nn.SGFormerConv`. (default:
            :obj:`"frobenius"`)
        alpha (float, optional): :math:`\alpha`, the share of the local branch. (default: :obj:`0.5`)
        beta (float, optional): :math:`\beta`, the share of the attention. (default: :obj:`0.5`)
        aggregate (str, optional): :obj:`"add"`, as above, or :obj:`"cat"`, both branches side by side without :math:`\alpha`. (default:
            :obj:`"add"`)
        gnn (torch.nn.Module, optional): The local branch, from features and edges to ``[N, hidden_channels]``. (default: :obj:`None`, a
            :class:`torch_geometric.nn.GCN` with two layers, batch normalisation and :obj:`dropout`)
        gnn_input (str, optional): What the local branch reads: :obj:`"hidden"`, :math:`\mathbf{Z}^{(0)}`, or :obj:`"input"`, the input
            itself, as in the authors' code. (default: :obj:`"hidden"`)
        layer_norm (bool, optional): If :obj:`False`, nothing is normalised. (default: :obj:`True`)
        activate_layers (bool, optional): If :obj:`True`, attention layers end in the activation. (default: :obj:`False`)
        act (str, optional): The activation. (default: :obj:`"relu"`)
        dropout (float, optional): Dropout probability. (default: :obj:`0.0`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or CSR; edges; batch vector *(optional)*
        - **output:** scores :math:`(N, F_{out})`

    Raises:
        ValueError: If a size or share is out of range, or an argument of the layer is.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 1,
        heads: int = 1,
        norm: str = 'frobenius',
        alpha: float = 0.5,
        beta: float = 0.5,
        aggregate: str = 'add',
        gnn: torch.nn.Module | None = None,
        gnn_input: str = 'hidden',
        layer_norm: bool = True,
        activate_layers: bool = False,
        act: str = 'relu',
        dropout: float = 0.0,
    ) -> None:
        for name, share in (('alpha', alpha), ('beta', beta)):
            if not 0 <= share <= 1:
                raise ValueError(f"'{name}' must be from 0 to 1 (got {share})")
        if aggregate not in ('add', 'cat'):
            raise ValueError(f"'aggregate' must be 'add' or 'cat' (got {aggregate!r})")
        if gnn_input not in ('hidden', 'input'):
            raise ValueError(f"'gnn_input' must be 'hidden' or 'input' (got {gnn_input!r})")
        read_channels = hidden_channels * (2 if aggregate == 'cat' else 1)
        sizes = in_channels, hidden_channels, out_channels, num_layers

        def make_conv() -> SGFormerConv:
            return SGFormerConv(hidden_channels, hidden_channels, heads, norm)

        super().__init__(*sizes, make_conv, act, dropout, layer_norm, activate_layers, read_channels)
        self.alpha, self.aggregate, self.gnn_input, self.shares = alpha, aggregate, gnn_input, (beta, 1 - beta)
        width = in_channels if gnn_input == 'input' else hidden_channels
        self.gnn = GCN(width, hidden_channels, 2, hidden_channels, dropout, norm='batch_norm') if gnn is None else gnn

    def forward(self, x: Tensor, edge_index: Edges, batch: Tensor | None = None, batch_size: int | None = None) -> Tensor:
        r"""Runs the model."""
        layers = self.layers(x, edge_index, batch, batch_size)
        local = self.gnn(x if self.gnn_input == 'input' else layers[0], edge_index)
        z = torch.cat([layers[-1], local], 1) if self.aggregate == 'cat' else (1 - self.alpha) * layers[-1] + self.alpha * local
        return self.lin_out(z)
