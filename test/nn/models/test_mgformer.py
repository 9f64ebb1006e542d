import re
from copy import deepcopy

import numpy as np
import pytest
import torch
from gradients import assert_same_gradients, leaves_of
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt.functional.ranking import History
from torch_geometric_lgt.loader import LinkNeighborLoader
from torch_geometric_lgt.nn import MGFormer, NodeFormer
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.transforms import SVDEncoding

USERS, ITEMS, N = 7, 5, 12
EDGES = torch.tensor([[0, 0, 1, 2, 3, 3, 4, 5], [7, 8, 7, 9, 10, 7, 8, 11]])


def make(**arguments):
    arguments = {
        'structural_encoding': torch.randn(N, 4),
        'degree': torch.arange(N) % 4,
        'embedding_dim': 4,
        **arguments,
    }
    return MGFormer(USERS, ITEMS, **arguments).double()


def definition(model):
    """One layer, one head: Eq. 4-12 as they read, plus the residual."""
    (layer,) = model.layers
    x = model.embedding.weight
    if model.structural_encoding is not None:
        x = torch.cat([x, model.structural_encoding.double()], 1)
    scale = layer.head_key_channels**-0.25
    phi_q, phi_k = (
        dense.feature_map('softmax', scale * lin(x)[:, None], layer.feature_map.projection)
        for lin in (layer.lin_query, layer.lin_key)
    )
    mask = None
    if model.mask == 'degree':
        z = layer.lin_degree(layer.degree_embedding(model.degree)).sigmoid().squeeze(1)
        mask = dense.degree_mask(z, z)
    elif model.mask == 'adjacency':
        mask = torch.zeros(N, N, dtype=torch.float64)
        mask[EDGES[1], EDGES[0]] = 1
    return dense.kernel_attention(phi_q, phi_k, x[:, None], mask).squeeze(1) + (
        x if model.residual else 0
    )


@pytest.mark.parametrize('residual', [True, False])
@pytest.mark.parametrize('arguments', [{}, {'structural_encoding': None}, {'key_channels': 3}])
@pytest.mark.parametrize('mask', ['degree', 'adjacency', 'none'])
def test_matches_the_definition_with_gradients(mask, arguments, residual):
    model = make(mask=mask, residual=residual, **arguments)
    nodes = torch.tensor([3, 11, 0, 7, 3])
    actual, expected = model.get_embedding(EDGES, nodes), definition(model)[nodes]
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model.get_embedding(EDGES)[nodes], actual, rtol=1e-10, atol=1e-10)
    grad = torch.randn_like(actual)
    assert_same_gradients(actual, expected, leaves_of(model), grad, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize('mask', ['degree', 'none'])
def test_states_give_the_same_rows(mask):
    model = make(mask=mask, num_layers=3)
    states, expected = model.attention_states(), model.get_embedding()
    nodes = torch.tensor([9, 2, 2])
    torch.testing.assert_close(model.get_embedding(states=states), expected)
    actual = model.get_embedding(nodes=nodes, states=states)
    torch.testing.assert_close(actual, expected[nodes])
    grad = torch.randn_like(actual)
    assert_same_gradients(actual, expected[nodes], leaves_of(model), grad)
    cut = model.get_embedding(nodes=nodes, states=[state.detach() for state in states])
    (gradient,) = torch.autograd.grad(cut.sum(), model.embedding.weight)
    assert gradient.abs().sum(1).nonzero().flatten().tolist() == [2, 9]
    with pytest.raises(ValueError, match="'mask' must be 'degree' or 'none' for states"):
        make(mask='adjacency').attention_states(EDGES)
    with pytest.raises(ValueError, match="'mask' must be 'degree' or 'none' for states"):
        make(mask='adjacency').get_embedding(EDGES, states=states)
    for wrong in ([], [*states, *states]):
        with pytest.raises(ValueError, match="'states' must be one for each of 3 layers"):
            model.get_embedding(states=wrong)
    with pytest.raises(TypeError, match=r"'states' must be a list of states .got AttentionState"):
        model.get_embedding(states=states[0])
    for wrong, kind in ((None, 'NoneType'), (states[1].state_dict(), 'dict')):
        with pytest.raises(TypeError, match=rf"'states\[1\]' must be an .* \(got {kind}\); Att"):
            model.get_embedding(nodes=nodes, states=[states[0], wrong, states[2]])


def test_without_layers():
    model = make(num_layers=0)
    x = torch.cat([model.embedding.weight, model.structural_encoding], 1)
    nodes = torch.tensor([4, 4, 0])
    assert torch.equal(model.get_embedding(), x)
    assert torch.equal(model.get_embedding(nodes=nodes), x[nodes])
    assert model.attention_states() == []
    assert torch.equal(model.get_embedding(nodes=nodes, states=[]), x[nodes])


@pytest.mark.parametrize('mask', ['degree', 'adjacency', 'none'])
def test_embeddings_that_are_changed_leave_the_parameters(mask):
    """The output of a model without layers was its parameter."""
    model = MGFormer(USERS, ITEMS, 4, num_layers=0, mask=mask)
    expected = model.embedding.weight.detach().clone()
    out = model.get_embedding(EDGES).detach()
    assert torch.equal(out, expected)
    out.zero_()
    assert torch.equal(model.embedding.weight, expected)
    (grad,) = torch.autograd.grad(model.get_embedding(EDGES).sum(), model.embedding.weight)
    assert torch.equal(grad, torch.ones_like(grad))


@pytest.mark.parametrize('name', ['degree', 'structural_encoding'])
def test_two_models_of_one_tensor_have_values_of_their_own(name):
    """Loading a state dict into one model changed the other one."""
    values = {
        'degree': torch.arange(USERS + ITEMS),
        'structural_encoding': torch.ones(USERS + ITEMS, 3),
    }
    one, other = (MGFormer(USERS, ITEMS, 4, encoding_scale=None, **values) for _ in range(2))
    before = values[name].clone()
    other.load_state_dict(other.state_dict() | {name: before + 1})
    assert torch.equal(getattr(other, name), before + 1)
    assert torch.equal(getattr(one, name), before)
    assert torch.equal(values[name], before)


def test_scores_and_recommendations():
    model = make(num_layers=2, heads=2)
    out = model.get_embedding()
    scores = out[:USERS] @ out[USERS:].t()
    pairs = torch.tensor([[0, 6, 0], [7, 11, 9]])
    torch.testing.assert_close(model(edge_label_index=pairs), scores[pairs[0], pairs[1] - USERS])
    torch.testing.assert_close(model(EDGES), scores[EDGES[0], EDGES[1] - USERS])
    torch.testing.assert_close(model.predict_link(EDGES, prob=True), model(EDGES).sigmoid())
    assert set(model.predict_link(EDGES).tolist()) <= {0.0, 1.0}
    assert torch.equal(model.recommend(k=3), scores.topk(3).indices + USERS)
    chosen = torch.tensor([11, 8])
    assert torch.equal(
        model.recommend(src_index=torch.tensor([2]), dst_index=chosen, k=2)[0],
        chosen[scores[2, chosen - USERS].argsort(descending=True)],
    )
    loss = model.recommendation_loss(
        torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([0]), 0.5
    )
    expected = (
        torch.log1p(torch.tensor(-1.0).exp()).item()
        + 0.5 * model.embedding.weight[0].square().sum().item()
    )
    assert loss.item() == pytest.approx(expected)
    assert model.link_pred_loss(torch.zeros(2), torch.tensor([0, 1])).item() == pytest.approx(
        0.693147, abs=1e-6
    )


def test_scores_of_pairs_in_other_shapes_are_refused():
    """Each positive pair was compared with each negative one, without an error."""
    model, scores = make(), torch.randn(4)
    for other in (scores[:, None], scores[:1], torch.randn(4, 4)):
        with pytest.raises(
            ValueError, match=r"'neg_edge_rank' must hold a score for each .* \(4,\) \(got \("
        ):
            model.recommendation_loss(scores, other)
    several = torch.randn(4, 3)  # negative pairs of each positive one
    expected = -F.logsigmoid(scores[:, None] - several).mean()
    torch.testing.assert_close(
        model.recommendation_loss(scores[:, None], several, lambda_reg=0.0), expected
    )


def test_masks_of_numbers_are_refused():
    """They were read as the ids 0 and 1."""
    model = make()
    mask = torch.arange(USERS + ITEMS) < 3
    assert torch.equal(model.recommend(src_index=mask), model.recommend(src_index=[0, 1, 2]))
    for argument in ('src_index', 'dst_index'):
        for numbers in (mask.long(), mask.int(), mask.long().tolist()):
            with pytest.raises(
                ValueError, match=rf"'{argument}' must hold ids .* \(got a 0 or 1 for each of"
            ):
                model.recommend(**{argument: numbers})
    with pytest.raises(ValueError, match=r"'nodes' must hold ids of nodes or be a mask of bools"):
        model.get_embedding(nodes=mask.long())
    for argument, size in (('src_index', USERS), ('dst_index', ITEMS)):
        message = rf"'{argument}' must .* for each of {size} nodes in torch.int64\); give the ids"
        with pytest.raises(ValueError, match=message):
            model.recommend(**{argument: mask[:size].long()})


def test_the_penalty_is_on_nodes_that_exist():
    """An id of -1 was that of the last node, and a mask of numbers the ids 0 and 1."""
    model, scores = make(), torch.zeros(1)
    rows = model.embedding.weight.detach().square().sum(1)
    mask = torch.arange(USERS + ITEMS) < 3
    for nodes in ([0, 1, 2], mask, torch.tensor([[0, 2, 1]], dtype=torch.int32)):
        loss = model.recommendation_loss(scores, scores, nodes, 1.0)
        assert loss.item() == pytest.approx(rows[:3].sum().item() + 0.693147, rel=1e-6)
    for nodes, got in ((torch.tensor([-1, 2]), '-1 to 2'), ([2, 99], '2 to 99')):
        with pytest.raises(ValueError, match=rf"'node_id' must hold ids from 0 .* \(got {got}\)"):
            model.recommendation_loss(scores, scores, nodes)
    with pytest.raises(ValueError, match=r"'node_id' must hold ids of nodes or be a mask of bools"):
        model.recommendation_loss(scores, scores, mask.long())


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_whole_numbers_in_half_precision_are_not_loaded(dtype):
    """The rule 0.5 became 'cosine' or 2, and degrees were rounded."""
    model, other = make(), make()
    model.scoring = 0.5
    state = {name: value.to(dtype) for name, value in model.state_dict().items()}
    for name in ('scoring_rule', 'degree'):
        with pytest.raises(RuntimeError, match=f"'state_dict' must hold '{name}' in int64"):
            other.load_state_dict(state, strict=False)
    state |= {name: getattr(model, name) for name in ('scoring_rule', 'degree')}
    other.load_state_dict(state)
    assert other.scoring == 0.5
    other.load_state_dict(model.half().state_dict())
    assert other.scoring == 0.5


def test_a_threshold_in_the_place_of_a_flag():
    with pytest.raises(ValueError, match=r"'prob' must be True or False \(got 0.5\)"):
        make().predict_link(EDGES, EDGES, 0.5)


def test_labels_that_a_loader_has_counted_up_are_refused():
    """PyG's loader adds 1 to the labels where it draws negative pairs; the loss fell below 0."""
    data = Data(edge_index=EDGES, num_nodes=USERS + ITEMS)
    labels = torch.arange(EDGES.size(1)) % 2
    loader = LinkNeighborLoader(
        data, [-1], EDGES, edge_label=labels, neg_sampling='binary', batch_size=4
    )
    label, model = next(iter(loader)).edge_label, MGFormer(USERS, ITEMS)
    assert label.unique().tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"'edge_label' must be from 0 to 1 \(got 0 to 2\)"):
        model.link_pred_loss(torch.zeros(len(label)), label)
    assert model.link_pred_loss(torch.zeros(2), torch.tensor([0.25, 1])).item() > 0


def dense_ranking(model, rule, exclude=None, dtype=torch.float64):
    """The items of each user from the best to the worst, from all scores at once."""
    out = model.get_embedding(EDGES).detach().to(dtype)
    users, items = out[:USERS], out[USERS:]
    scores = users @ items.t()
    if rule != 'inner':
        scores = scores / (users.norm(dim=1)[:, None] * items.norm(dim=1))
    if rule not in ('inner', 'cosine'):
        scores = scores * model.degree[USERS:].clamp(min=1).double() ** rule
    if exclude is not None:
        scores[exclude[0], exclude[1] - USERS] = -torch.inf
    return scores.argsort(dim=1, descending=True) + USERS


@pytest.mark.parametrize('batch_size', [None, 1, 3])
@pytest.mark.parametrize('rule', ['inner', 'cosine', 0.5, -1, 0.0])
@pytest.mark.parametrize('mask', ['degree', 'adjacency', 'none'])
def test_recommendations_by_each_rule(mask, rule, batch_size):
    model = make(mask=mask, num_layers=2)
    expected = dense_ranking(model, rule)
    assert torch.equal(
        model.recommend(EDGES, k=ITEMS, scoring=rule, batch_size=batch_size), expected
    )
    assert torch.equal(
        model.recommend(EDGES, [5, 2, 5], k=2, scoring=rule, batch_size=batch_size),
        expected[[5, 2, 5], :2],
    )
    without = dense_ranking(model, rule, EDGES)
    for exclude in (EDGES, EDGES.flip(0), torch.cat([EDGES, EDGES.flip(0), EDGES], 1)):
        top = model.recommend(EDGES, k=3, scoring=rule, batch_size=batch_size, exclude=exclude)
        assert torch.equal(top, without[:, :3])
    assert not {tuple(pair) for pair in EDGES.t().tolist()} & {
        (user, int(item)) for user in range(USERS) for item in top[user]
    }


def test_history_is_left_out_of_chosen_nodes():
    model = make()
    pairs = torch.tensor([[0, 0, 6], [7, 8, 7]])
    matrix = torch.sparse_coo_tensor(
        pairs.flip(0), torch.ones(3), (N, N), check_invariants=True
    ).to_sparse_csr()
    for exclude in (pairs, pairs.int(), matrix):
        top = model.recommend(src_index=[0, 6, 1], dst_index=[9, 8, 7, 9], k=1, exclude=exclude)
        assert top.tolist()[0] == [9]
        assert top[1, 0] in (8, 9)
    assert sorted(
        model.recommend(src_index=[6], dst_index=[9, 8, 7, 9], k=2, exclude=pairs)[0].tolist()
    ) == [8, 9]
    # items as sources
    similar = model.recommend(
        src_index=[7], dst_index=range(USERS, N), k=3, exclude=torch.tensor([[7, 9], [7, 7]])
    )
    assert sorted(similar[0].tolist()) == [8, 10, 11]
    with pytest.raises(
        ValueError,
        match=(
            r"'k' must be at most 1, the number of nodes that 'exclude' leaves to node 0 \(got "
            r'2\)'
        ),
    ):
        model.recommend(src_index=[6, 0], dst_index=[9, 8, 7, 9], k=2, exclude=pairs)
    with pytest.raises(
        ValueError, match="'k' must be at most 3, the number of nodes to choose from"
    ):
        model.recommend(dst_index=[9, 8, 7, 9], k=4)
    with pytest.raises(
        ValueError,
        match=(
            r"'exclude' must hold pairs of a user and an item, whose ids begin at 7 \(got \[0, "
            r'1\]\)'
        ),
    ):
        model.recommend(exclude=pairs - torch.tensor([[0], [6]]))
    with pytest.raises(TypeError, match="'exclude' must be a tensor"):
        model.recommend(exclude=pairs.tolist())


def test_equal_scores_give_distinct_items_without_history():
    model = make(structural_encoding=None, num_layers=0)
    torch.nn.init.ones_(model.embedding.weight)
    for sort in (True, False):
        top = model.recommend(EDGES, k=3, sorted=sort, exclude=EDGES)
        for user, items in enumerate(top.tolist()):
            allowed = set(range(USERS, N)) - set(EDGES[1, EDGES[0] == user].tolist())
            assert len(set(items)) == 3
            assert set(items) <= allowed


class LargestTensor(TorchDispatchMode):
    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(part, torch.Tensor):
                assert not part.requires_grad
                self.elements = max(self.elements, part.numel())
        return out


def test_recommendations_in_training_are_those_of_evaluation():
    feature_map = torch.nn.Sequential(torch.nn.Softplus(), torch.nn.Dropout(0.9))
    model = MGFormer(30, 40, 8, mask='none', feature_map=feature_map).train()
    assert torch.equal(model.recommend(k=5), model.eval().recommend(k=5))


def test_recommendations_make_scores_of_some_users_without_gradients():
    users, items = 900, 700
    model = MGFormer(users, items, 8, mask='none').train()
    edges = torch.stack([torch.arange(users), users + torch.arange(users) % items])
    with LargestTensor() as largest:
        model.recommend(k=5, exclude=edges, batch_size=16)
    assert largest.elements <= max(16 * items, 8 * (users + items), 5 * users)
    assert model.training
    assert all(layer.training for layer in model.layers)
    large = MGFormer(4000, 3000, 4, num_layers=0)
    with LargestTensor() as largest:
        large.recommend(k=5)
    assert largest.elements <= 1 << 20
    assert not large.recommend(k=1).requires_grad


@pytest.mark.parametrize('rule', ['inner', 'cosine', 0.1, -2.5])
def test_the_rule_is_kept_with_the_weights(rule):
    model = make()
    assert model.scoring == 'inner'
    model.scoring = rule
    assert model.scoring == rule
    other = make(structural_encoding=model.structural_encoding)
    other.load_state_dict(model.state_dict())
    assert other.scoring == rule
    for converted in (other.bfloat16(), other.float()):
        assert converted.scoring == rule
    ranking = dense_ranking(model, rule)
    assert torch.equal(model.recommend(EDGES, k=ITEMS), ranking)
    assert torch.equal(
        model.recommend(EDGES, k=ITEMS, scoring='cosine'), dense_ranking(model, 'cosine')
    )
    model.reset_parameters()
    assert model.scoring == 'inner'


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('rule', ['inner', 'cosine', 0.3])
def test_half_precision_ranks_as_its_rows_do(rule, dtype):
    """An item with a row of zeros came first in float16, and bfloat16 made many scores equal."""
    model = MGFormer(20, 200, 8, degree=torch.arange(220), num_layers=0).to(dtype)
    with torch.no_grad():
        model.embedding.weight[57] = 0
    precise = deepcopy(model).double()
    expected = precise.recommend(k=200, scoring=rule)
    top = model.recommend(k=20, scoring=rule)
    assert torch.equal(top, expected[:, :20])
    assert not bool((top == 57).any())
    with torch.autocast('cpu', torch.bfloat16):
        assert torch.equal(precise.float().recommend(k=20, scoring=rule), top)


def test_unknown_rules_end_in_an_error():
    model = make()
    for rule in ('dot', float('nan'), float('inf'), True, None, torch.tensor(0.1)):
        with pytest.raises(
            ValueError, match="'scoring' must be one of 'inner', 'cosine', or a finite exponent"
        ):
            model.scoring = rule
        if rule is not None:
            with pytest.raises(
                ValueError, match="'scoring' must be one of 'inner', 'cosine', or a finite exponent"
            ):
                model.recommend(scoring=rule)
    assert model.scoring == 'inner'
    high = make(degree=torch.full((N,), 9)).float()
    for rule in (300.0, -300.0):
        with pytest.raises(
            ValueError,
            match=(
                r"'scoring' must be an exponent whose powers of the items' degrees torch.float32 "
                rf'can represent \(got {rule} and degrees up to 9\)'
            ),
        ):
            high.recommend(scoring=rule)
    with pytest.raises(ValueError, match="'degree' must be in the model"):
        make(degree=None, mask='none').recommend(scoring=0.1)
    counted = make(degree=None, mask='none')
    assert counted.recommend(EDGES, scoring=0.1).shape == (USERS, 1)
    for arguments, message in (
        ({'k': -1}, "'k' must be"),
        ({'batch_size': 0}, "'batch_size' must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.recommend(**arguments)


def test_a_matrix_with_weights_ranks_as_weighted_edges():
    """The attention reads the weights; the degrees of the rule are numbers of neighbours."""
    model = make(degree=None, mask='adjacency')
    edges = torch.cat([EDGES, EDGES.flip(0)], 1)
    weight = torch.rand(edges.size(1), dtype=torch.float64)
    matrix = torch.sparse_coo_tensor(edges.flip(0), weight, (N, N)).to_sparse_csr()
    assert torch.equal(
        model.recommend(matrix, k=ITEMS, scoring=0.5),
        model.recommend(edges, k=ITEMS, scoring=0.5, edge_weight=weight),
    )


def test_edges_whose_items_have_ids_from_0_are_refused():
    edges = EDGES - torch.tensor([[0], [USERS]])
    message = (
        f"'edge_index' must join users and items, whose ids begin at {USERS} (got [0, 0] and ids "
        'up to 5); add the number of users to the ids of items'
    )
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        make(degree=None).recommend(edges)
    assert make(degree=None).recommend(EDGES[:, :0]).shape == (USERS, 1)
    model = make()
    for argument, pairs in (('edge_index', (edges,)), ('edge_label_index', (EDGES, edges))):
        with pytest.raises(ValueError, match=f"'{argument}' must join users and items"):
            model(*pairs)
    # two users have a score, but no loss
    assert model.eval()(EDGES, edges).shape == model.train()(EDGES, EDGES).shape


def test_item_ids_from_0_are_refused_where_there_are_more_items_than_users():
    """The largest ids looked like those of items, and others joined two users."""
    model = MGFormer(3, 9, 4)
    edges = torch.tensor([[0, 0, 1, 2], [1, 5, 8, 7]])
    for graph in (edges, torch.cat([edges, edges.flip(0)], 1)):
        message = r"'edge_index' must join .* begin at 3 \(got \[0, 1\] and ids up to 8\); add"
        with pytest.raises(ValueError, match=message):
            model.recommend(graph)
    nodes = edges + torch.tensor([[0], [3]])
    friends = torch.tensor([[0], [1]])
    assert model.recommend(torch.cat([nodes, friends], 1)).shape == (3, 1)
    assert model.recommend(nodes[:, :2]).shape == (3, 1)  # items whose ids are below 9


def test_pairs_whose_items_have_ids_from_0_are_refused_in_training():
    """The pairs were users, without an error where there are more items than users."""
    model = MGFormer(3, 9, 4, degree=torch.ones(12, dtype=torch.long))
    pairs = torch.tensor([[0, 0, 1, 2], [1, 5, 8, 7]])
    message = r"'edge_label_index' must join .* begin at 3 \(got \[(0, 1|1, 0)\] and ids up to 8\)"
    for labels in (pairs, pairs.flip(0)):
        with pytest.raises(ValueError, match=message):
            model(None, labels)
    nodes = pairs + torch.tensor([[0], [3]])
    negative = torch.tensor([[0, 4], [1, 2]])  # random nodes
    for labels in (nodes, nodes[:, :2], torch.cat([nodes[:, :2], negative], 1)):
        assert model(None, labels).shape == (labels.size(1),)
    assert model.eval()(None, pairs).shape == (4,)


@pytest.mark.parametrize('mask', ['degree', 'adjacency'])
def test_edges_that_an_embedding_reads_join_users_and_items(mask):
    """Embeddings had the degrees or the neighbours of other nodes."""
    model = MGFormer(3, 9, 4, mask=mask)
    edges = torch.tensor([[0, 0, 1, 2], [1, 5, 8, 7]])
    nodes = edges + torch.tensor([[0], [3]])
    message = r"'edge_index' must join .* begin at 3 \(got \[0, 1\] and ids up to 8\)"
    for call in (
        lambda: model.get_embedding(edges),
        lambda: model.get_embedding(edges, [4]),
        lambda: model(edges, nodes),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert model.get_embedding(nodes).shape == (12, 4)
    known = MGFormer(3, 9, 4, degree=torch.ones(12, dtype=torch.long))
    assert known.get_embedding(edges).shape == (12, 4)  # which reads no edges


def test_heads_and_encodings_that_do_not_fit():
    encoding = torch.ones(5, 3)
    for options, message in (
        ({'heads': 3}, r"'heads' must divide 'embedding_dim' \(got 3 and 8\)"),
        (
            {'heads': 2, 'structural_encoding': encoding},
            r"divide 'embedding_dim' plus the columns of 'structural_encoding' \(got 2 and 11\)",
        ),
        ({'heads': 0}, "'heads' must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            MGFormer(2, 3, 8, **options)
    with pytest.raises(TypeError, match="'structural_encoding' must be a"):
        MGFormer(2, 3, 8, encoding.tolist())


def test_ids_as_lists_and_arrays():
    model = make()
    expected = model.recommend(
        src_index=torch.tensor([3, 1]), dst_index=torch.tensor([8, 11, 9]), k=2
    )
    for users, items in (
        ([3, 1], (8, 11, 9)),
        (np.array([3, 1]), np.array([8, 11, 9])),
        (range(3, 0, -2), torch.tensor([8, 11, 9]).int()),
    ):
        assert torch.equal(model.recommend(src_index=users, dst_index=items, k=2), expected)
    assert torch.equal(
        model.get_embedding(nodes=[3, 1]), model.get_embedding(nodes=torch.tensor([3, 1]))
    )
    mask = np.arange(N) == 3
    assert torch.equal(model.recommend(src_index=mask, dst_index=[8, 11, 9], k=2), expected[:1])
    assert model.recommend(src_index=[], k=2).shape == (0, 2)
    assert model.recommend(dst_index=[], k=0).shape == (USERS, 0)
    with pytest.raises(TypeError, match=r"numbers from 0 to .* \(got list with 'u7'\); look up"):
        model.recommend(src_index=['u7', 'u8'], k=2)
    for name in ('src_index', 'dst_index'):
        for ids in ('users', 3, {1, 2}, {0: 1}, [[1], [2, 3]], ['a']):
            with pytest.raises(
                TypeError, match=f"'{name}' must be a tensor or a list of ids of nodes"
            ):
                model.recommend(**{name: ids})
        with pytest.raises(ValueError, match=f"'{name}' must hold ids of nodes"):
            model.recommend(**{name: [0.5]})


def test_nodes_in_the_place_of_the_edges():
    model = make()
    for wrong, error in (([3, 1], TypeError), (torch.tensor([3, 1]), ValueError)):
        with pytest.raises(error, match=r"'edge_index' must .*; give users as 'src_index'$"):
            model.recommend(wrong)
        with pytest.raises(error, match=r"'edge_index' must .*; give nodes as 'nodes'$"):
            model.get_embedding(wrong)
        with pytest.raises(error, match=r"'edge_index' must .*; the states are those of all"):
            model.attention_states(wrong)


def test_degrees_are_counted_from_edges():
    model = make(degree=None)
    reference = make(
        degree=torch.bincount(EDGES.flatten(), minlength=N),
        structural_encoding=model.structural_encoding,
    )
    reference.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(model.get_embedding(EDGES), reference.get_embedding())


def test_from_data():
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = USERS, ITEMS
    edges = EDGES - torch.tensor([[0], [USERS]])
    data['user', 'rates', 'item'].edge_index = torch.cat([edges, edges[:, :1]], 1)
    data['item', 'rev_rates', 'user'].edge_index = edges.flip(0)
    model = MGFormer.from_data(SVDEncoding(3)(data), 4, mask='degree')
    assert repr(model) == 'MGFormer(7, 5, 4, num_layers=1)'
    assert torch.equal(model.degree, torch.bincount(EDGES.flatten(), minlength=N))
    assert model.layers[0].max_degree == model.max_degree == 512
    more = SVDEncoding(3)(data)
    more['user'].num_nodes = 520
    more['user', 'rates', 'item'].edge_index = torch.stack(
        [torch.arange(520), torch.zeros(520, dtype=torch.long)]
    )
    del more['user'].svd_pe, more['item'].svd_pe
    assert MGFormer.from_data(more, 4).max_degree == 520
    assert MGFormer.from_data(more, 4, max_degree=9).max_degree == 9
    data = SVDEncoding(3)(data)
    encoding = torch.cat([store.svd_pe for store in data.node_stores])
    lengths = encoding.norm(dim=1, keepdim=True)
    torch.testing.assert_close(
        model.structural_encoding, torch.where(lengths > 0, 0.6 * encoding / lengths, 0)
    )
    assert torch.equal(
        MGFormer.from_data(data, 4, encoding_scale=None).structural_encoding, encoding
    )
    assert MGFormer.from_data(data, 4, structural_encoding=None).structural_encoding is None
    renamed = SVDEncoding(3, attr_name='pe')(data)
    del renamed['user'].svd_pe, renamed['item'].svd_pe
    assert MGFormer.from_data(renamed, 4).structural_encoding is None
    assert torch.equal(
        MGFormer.from_data(renamed, 4, attr_name='pe').structural_encoding,
        model.structural_encoding,
    )


def test_a_misspelt_name_of_the_encodings_is_refused():
    """The model had no encodings, without an error."""
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = USERS, ITEMS
    data['user', 'rates', 'item'].edge_index = EDGES - torch.tensor([[0], [USERS]])
    data = SVDEncoding(3)(data)
    message = "'attr_name' must be an attribute of both node types (got 'svd', which neither has)"
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}; did you mean 'svd_pe'\?$"):
        MGFormer.from_data(data, 4, attr_name='svd')


def test_from_data_with_adjacency_matrices():
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = USERS, ITEMS
    edges = EDGES - torch.tensor([[0], [USERS]])
    data['user', 'rates', 'item'].edge_index = edges
    expected = MGFormer.from_data(data, 4).degree
    for weight in (torch.ones(8), torch.arange(1.0, 9)):
        matrix = torch.sparse_coo_tensor(edges.flip(0), weight, (ITEMS, USERS)).to_sparse_csr()
        sparse = HeteroData()
        sparse['user'].num_nodes, sparse['item'].num_nodes = USERS, ITEMS
        sparse['user', 'rates', 'item'].adj_t = matrix
        assert torch.equal(MGFormer.from_data(sparse, 4).degree, expected)


def test_users_need_not_be_the_first_node_type():
    """The movies of PyG's MovieLens, its first node type, were taken for users."""
    edges = EDGES - torch.tensor([[0], [USERS]])
    models = []
    for names in (('user', 'item'), ('item', 'user')):
        data = HeteroData()
        for name in names:
            data[name].num_nodes = {'user': USERS, 'item': ITEMS}[name]
        data['user', 'rates', 'item'].edge_index = edges
        data['item', 'rated_by', 'user'].edge_index = edges.flip(0)
        data['user'].svd_pe, data['item'].svd_pe = torch.ones(USERS, 2), torch.zeros(ITEMS, 2)
        models.append(MGFormer.from_data(data, 4, user_type='user'))
    message = (
        r"'user_type' must name the users where the first node type, 'item', is not the source of "
        r"the first edges .*; give one of \['item', 'user'\]"
    )
    with pytest.raises(ValueError, match=message):
        MGFormer.from_data(data, 4)
    with pytest.raises(ValueError, match=r"'user_type' must be one of .*did you mean 'user'"):
        MGFormer.from_data(data, 4, user_type='users')
    for model in models:
        assert (model.num_users, model.num_items) == (USERS, ITEMS)
        assert torch.equal(model.degree, torch.bincount(EDGES.flatten(), minlength=N))
        assert torch.equal(model.structural_encoding, models[0].structural_encoding)
    swapped = MGFormer.from_data(data, 4, user_type='item')
    assert (swapped.num_users, swapped.num_items) == (ITEMS, USERS)
    assert torch.equal(swapped.degree, models[0].degree.roll(ITEMS))


def test_from_data_without_what_it_needs():
    """An id of a user beyond the last one counted as an item."""
    empty = torch.empty((2, 0), dtype=torch.long)
    for sizes, edges, encoded, message in (
        (
            (2, 3),
            [[0, 2], [1, 1]],
            (),
            r"'edge_index' must hold source ids from 0 to 1 \(got 0 to 2",
        ),
        ((2, 0), empty, (), r"'data' must have users and items \(got {'user': 2, 'item': 0}\)"),
        (
            (2, 3),
            None,
            (),
            r"'data' must have two node types.* edges .*\['user', 'item'\] and \[\]",
        ),
        ((2, 3), empty, ('user',), "'attr_name' must be .*got 'svd_pe', which only 'user' has"),
    ):
        data = HeteroData()
        data['user'].num_nodes, data['item'].num_nodes = sizes
        if edges is not None:
            data['user', 'rates', 'item'].edge_index = torch.as_tensor(edges)
        for name in encoded:
            data[name].svd_pe = torch.ones(data[name].num_nodes, 2)
        with pytest.raises(ValueError, match=message):
            MGFormer.from_data(data)
    data = HeteroData()
    data['user', 'rates', 'item'].edge_index = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match=r'two node types.*; set num_nodes of both node types$'):
        MGFormer.from_data(data)


@pytest.mark.parametrize(
    ('make', 'layers'),
    [
        (lambda phi: MGFormer(2, 3, embedding_dim=4, num_layers=2, feature_map=phi), 'layers'),
        (
            lambda phi: NodeFormer(
                4, 4, 3, feature_map=phi, num_features=None, num_gumbel_samples=0
            ),
            'convs',
        ),
    ],
    ids=['MGFormer', 'NodeFormer'],
)
def test_layers_share_a_module_until_each_gets_a_copy(make, layers):
    phi = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Softplus())
    model = make(phi)
    parameters = len(list(model.parameters()))
    assert [layer.feature_map for layer in getattr(model, layers)] == [phi, phi]
    for layer in getattr(model, layers):
        layer.feature_map = deepcopy(phi)
    assert len(list(model.parameters())) == parameters + 2


def test_a_state_dict_has_what_a_model_without_the_data_needs():
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = USERS, ITEMS
    data['user', 'rates', 'item'].edge_index = EDGES - torch.tensor([[0], [USERS]])
    model = MGFormer.from_data(SVDEncoding(3)(data), 4)
    model.scoring = 0.2
    state = model.state_dict()
    names = 'num_users', 'num_items', 'embedding_dim', 'max_degree'
    served = MGFormer(
        **{name: getattr(model, name) for name in names},
        structural_encoding=torch.zeros_like(state['structural_encoding']),
        degree=torch.zeros_like(state['degree']),
    )
    served.load_state_dict(state)
    assert served.scoring == 0.2
    assert torch.equal(served.get_embedding(), model.get_embedding())
    later = SVDEncoding(3)(data)
    later['user', 'rates', 'item'].edge_index = torch.cartesian_prod(
        torch.arange(USERS), torch.arange(ITEMS)
    ).t()
    again = MGFormer.from_data(later, 4)
    again.load_state_dict(state)
    assert torch.equal(again.get_embedding(), model.get_embedding())


def test_a_request_sorts_the_pairs_of_its_users_only(monkeypatch):
    """A request for one of a million users sorted the pairs of all."""
    seen, among = [], History.among
    monkeypatch.setattr(
        History, 'among', lambda items, pairs, n: seen.append(pairs) or among(items, pairs, n)
    )
    pairs = torch.cat([EDGES, EDGES.flip(0)], 1)
    make().recommend(src_index=[2], exclude=pairs)
    assert torch.equal(seen[0], pairs[:, (pairs == 2).any(0)])


def test_a_user_without_a_row_is_no_item():
    """The id U, of the first item, was ranked for as if it were a user."""
    model = make()
    message = (
        rf"'src_index' must hold ids of users, from 0 to {USERS - 1}, unless 'dst_index' is given "
        rf'\(got {USERS}, an item\); for a new user, average the rows of get_embedding'
        r"\(nodes=items\) with the user's items, and score all items with this average by the rule "
        r"in 'scoring'$"
    )
    for users in ([USERS], [0, USERS], torch.arange(N) == USERS):
        with pytest.raises(ValueError, match=message):
            model.recommend(src_index=users)
    assert model.recommend(src_index=[USERS], dst_index=range(USERS, N), k=2).shape == (1, 2)


def test_queries_of_a_batch_only():
    """The last layer's query side costs as many flops as the nodes asked for."""
    model = make().float()
    flops = {}
    for count in (2, 4, 12):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.get_embedding(nodes=torch.arange(count))
        flops[count] = counter.get_total_flops()
    assert flops[12] - flops[4] == 4 * (flops[4] - flops[2])
    assert flops[4] > flops[2]


@pytest.mark.parametrize('mask', ['degree', 'none'])
@pytest.mark.compiled
@pytest.mark.inductor
def test_compiles_whole(mask):
    model = make(mask=mask).float()
    nodes = torch.tensor([1, 8])
    compiled = torch.compile(model.get_embedding, fullgraph=True)
    torch.testing.assert_close(compiled(nodes=nodes), model.get_embedding(nodes=nodes))


@pytest.mark.parametrize('mask', ['degree', 'adjacency', 'none'])
@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_compiled_scores_of_any_number_of_pairs(mask):
    model, edges = make(mask=mask).float().eval(), torch.randint(N, (2, 30))
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend='aot_eager')
    for size in (5, 17):
        pairs = torch.randint(N, (2, size))
        torch.testing.assert_close(compiled(edges, pairs), model(edges, pairs))


def test_reset_and_state_dict():
    torch.manual_seed(0)
    one = make()
    torch.manual_seed(0)
    other = make()
    assert all(
        torch.equal(a, b)
        for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    )
    other.reset_parameters()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.get_embedding(), other.get_embedding())


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'embedding_dim': 0}, "'embedding_dim' must be at least 1"),
        ({'num_layers': -1}, "'num_layers' must be at least 0"),
        ({'mask': 'distance'}, r"'mask' must be one of .* \(got 'distance'\)$"),
        ({'mask': 'degre'}, r"'mask' must be one of .* \(got 'degre'\); did you mean 'degree'\?"),
        ({'feature_map': 'simplx'}, r"\(got 'simplx'\); did you mean 'simplex'\?"),
        (
            {'structural_encoding': torch.ones(N - 1, 2)},
            r"'structural_encoding' must have shape \[12, S\]",
        ),
        ({'degree': torch.ones(N, 1, dtype=torch.long)}, r"'degree' must have shape \[12\]"),
    ],
)
def test_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_raises_without_edges():
    model = make(degree=None)
    with pytest.raises(
        ValueError,
        match=r"'degree' must be in the model, from MGFormer\.from_data or as an argument",
    ):
        model.get_embedding()
    with pytest.raises(ValueError, match="'mask' = 'adjacency'"):
        make(mask='adjacency').get_embedding()
    with pytest.raises(ValueError, match="'edge_label_index' must be given"):
        model()
    with pytest.raises(ValueError, match='two node types'):
        MGFormer.from_data(HeteroData())
    with pytest.raises(ValueError, match=r'dataset\[0\] of an InteractionDataset \(got Data\)'):
        MGFormer.from_data(Data(num_nodes=3))


@pytest.mark.parametrize('mask', ['degree', 'adjacency', 'none'])
def test_ids_and_masks_of_nodes(mask):
    model = make(mask=mask).eval()
    edges = torch.cat([EDGES, EDGES.flip(0)], 1)
    full = model.get_embedding(edges)
    chosen = torch.arange(N) % 5 == 3
    torch.testing.assert_close(model.get_embedding(edges, chosen), full[chosen])
    top = model.recommend(edges, torch.tensor([2]), chosen, k=2)
    assert sorted(top[0].tolist()) == [3, 8]
    for nodes in (torch.tensor([-1]), torch.tensor([N])):
        for method, name in (
            (model.get_embedding, 'nodes'),
            (model.recommend, 'src_index'),
            (model.recommend, 'dst_index'),
        ):
            with pytest.raises(
                ValueError,
                match=(
                    rf"'{name}' must hold ids from 0 to {N - 1} \(got {int(nodes)} to "
                    rf'{int(nodes)}\)'
                ),
            ):
                method(edges, **{name: nodes})
    for nodes in (chosen[1:], torch.ones(2), torch.ones(2, 1, dtype=torch.long)):
        with pytest.raises(ValueError, match="'nodes' must hold ids of nodes or be a mask of all"):
            model.get_embedding(edges, nodes)


@pytest.mark.parametrize('value', [2.0, '3', True, float('nan')])
def test_counts_of_recommend_are_whole(value):
    for name in ('k', 'batch_size'):
        with pytest.raises(ValueError, match=f"'{name}' must be at least ., a whole number"):
            make().recommend(**{name: value})
    with pytest.raises(ValueError, match="'k' must be at least 0, a whole number"):
        make().recommend(k=None)


@pytest.mark.parametrize('make_number', [np.int64, torch.tensor])
def test_counts_of_recommend_from_numpy_and_pytorch(make_number):
    model = make().eval()
    expected = model.recommend(EDGES, k=2, batch_size=3)
    found = model.recommend(EDGES, k=make_number(2), batch_size=make_number(3))
    assert torch.equal(found, expected)


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_rows_that_are_not_finite_are_not_ranked(value):
    model = make(num_layers=0)
    expected = model.recommend(src_index=[1, 2], dst_index=[8, 9], k=2)
    with torch.no_grad():
        model.embedding.weight[3, 1] = model.embedding.weight[10, 0] = value
    assert torch.equal(model.recommend(src_index=[1, 2], dst_index=[8, 9], k=2), expected)
    for arguments, node in (
        ({'src_index': [1, 3], 'dst_index': [8, 9]}, 3),
        ({'src_index': [1]}, 10),
    ):
        with pytest.raises(
            ValueError, match=rf"'embedding' must be finite .*the output of node {node} is not"
        ):
            model.recommend(**arguments)


def test_states_of_layers_that_share_parameters():
    model = MGFormer(4, 5, 8, num_layers=2, mask='none').double()
    model.layers[1] = model.layers[0]
    actual = model.get_embedding(states=model.attention_states())
    torch.testing.assert_close(actual, model.get_embedding(), rtol=1e-10, atol=1e-12)
