"""The definitions refuse what they would read as something else."""

import pytest
import torch

from torch_geometric_lgt.testing import dense

ONES, PAIR = torch.ones(2, 1, 3), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ('name', 'function', 'arguments'),
    [
        ('norm', dense.normalised, (ONES, 'rows')),
        ('norm', dense.inverse_denominators, (ONES[..., 0], ONES[..., 0], 3, 'rows')),
        ('kernel', dense.edge_weights, ('max', torch.ones(2, 2), torch.ones(2, 2, 1))),
        ('kernel', dense.edge_scores, ('jaccard', ONES, ONES, torch.ones(2, 2, 1, 3))),
        ('measure', dense.attention_distance, (torch.ones(2, 2), 'max')),
        ('kind', dense.feature_map, ('simplex', ONES)),
    ],
)
def test_unknown_names_are_refused(name, function, arguments):
    with pytest.raises(ValueError, match=f"^'{name}' must be one of .* \\(got '"):
        function(*arguments)


@pytest.mark.parametrize('kind', ['softmax', 'fourier'])
def test_random_features_need_a_projection(kind):
    with pytest.raises(ValueError, match=f"'projection' must be given .* '{kind}'"):
        dense.feature_map(kind, ONES)


@pytest.mark.parametrize('name', ['batch_q', 'batch_k'])
def test_graph_ids_of_one_side_are_refused(name):
    """They were ignored, as if all were in one graph."""
    for function, arguments in (
        (dense.attention_matrix, (ONES, ONES)),
        (dense.diffusion_attention, (ONES, ONES, ONES, 'row')),
        (dense.sigmoid_attention, (ONES, ONES, ONES)),
        (dense.sgformer_attention, (ONES, ONES, ONES, ONES, 'row')),
    ):
        with pytest.raises(ValueError, match="'batch_q' and 'batch_k' must both be given"):
            function(*arguments, **{name: PAIR})
