"""Names the constants of the package and its benchmarks that tests change: a constant that moves
changes one line."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

CONSTANTS = {
    'adjacency_chunk': 'functional.neighbors.adjacency_attention.CHUNK_ELEMENTS',
    'attention_chunk': 'functional._engine.operators.chunk_rows',
    'checkpoint_seconds': 'benchmarks.common.training.SAVE_SECONDS',
    'checkpoints': 'benchmarks.common.training.CHECKPOINTS',
    'compiled_jaccard': 'functional.neighbors.common_neighbors._compiled',
    'compiled_nodes': 'benchmarks.runtime.compiled.NODES',
    'compiled_other_nodes': 'benchmarks.runtime.compiled.OTHER_NODES',
    'dense_nodes': 'transforms._laplacian.DENSE_NODES',
    'dense_retry_nodes': 'transforms._laplacian.DENSE_RETRY_NODES',
    'download_bytes': 'datasets._sources.MAX_BYTES',
    'edge_attention_graphs': 'benchmarks.runtime.edge_attention.GRAPHS',
    'edge_attention_models': 'benchmarks.runtime.edge_attention.MODELS',
    'edge_sum_chunk': 'functional.neighbors.edge_sums.CHUNK_ELEMENTS',
    'file_chunk': '_io.CHUNK_ELEMENTS',
    'file_version': '_io.FORMAT_VERSION',
    'fused_channels': 'functional._engine.dispatch.FUSED_CHANNELS',
    'fused_devices': 'functional.numerics.FUSED_DEVICES',
    'fused_rows': 'functional._engine.dispatch.FUSED_ROWS',
    'gram_chunk': 'functional._engine.gram.CHUNK_ELEMENTS',
    'gram_pieces': 'functional._engine.gram.PIECES',
    'gpu_layer_cases': 'benchmarks.gpu.layers.CASES',
    'graph_chunk_bytes': 'data._files.CHUNK_BYTES',
    'input_chunk': 'functional._engine.layout.CHUNK_ELEMENTS',
    'jaccard_chunk': 'functional.neighbors.common_neighbors.CHUNK_ELEMENTS',
    'jaccard_lookups': 'functional.neighbors.common_neighbors._lookups',
    'jaccard_part': 'functional.neighbors.common_neighbors.PART_ELEMENTS',
    'jaccard_searched': 'functional.neighbors.common_neighbors.SEARCHED_ELEMENTS',
    'layer_cases': 'benchmarks.runtime.layers.CASES',
    'long_rows': 'functional._engine.fused_edges.LONG',
    'loader_graphs': 'benchmarks.runtime.loaders.GRAPHS',
    'loss_chunk': 'functional.losses.CHUNK_ELEMENTS',
    'memory_clear': 'benchmarks.common.memory.CLEAR',
    'memory_status': 'benchmarks.common.memory.STATUS',
    'ogb_shapes': 'benchmarks.runtime.ogb_shapes.SHAPES',
    'out_of_core_nodes': 'benchmarks.runtime.out_of_core.WHOLE',
    'paired': 'functional._engine.operators.is_paired',
    'partition_chunk_edges': 'loader.node_partition_loader.CHUNK_EDGES',
    'plain_elements': 'functional._engine.dispatch.PLAIN_ELEMENTS',
    'published_times': 'benchmarks.runtime.__main__.PUBLISHED',
    'ranking_chunk': 'functional.ranking.CHUNK_ELEMENTS',
    'save_seconds': 'nn.models._streaming.workspace.SAVE_SECONDS',
    'sigmoid_chunk': 'functional.attention.sigmoid.CHUNK_ELEMENTS',
    'sigmoid_pairs': 'functional.attention.sigmoid.MAX_PAIRS',
    'sigmoid_rows': 'functional.attention.sigmoid.MIN_ROWS',
    'small_graph_calls': 'benchmarks.runtime.small_graphs.CALLS',
    'small_graph_warm_calls': 'benchmarks.runtime.small_graphs.WARM',
    'stalled_seconds': 'datasets._download.STALLED_SECONDS',
    'state_elements': 'functional._engine.operators.STATE_ELEMENTS',
    'state_programs': 'functional._engine.operators.MAX_PROGRAMS',
    'svd_elements': 'transforms._truncated_svd.DENSE_ELEMENTS',
    'svd_retry_elements': 'transforms._truncated_svd.DENSE_RETRY_ELEMENTS',
    'triton_interpreted': 'functional._triton.blocks.INTERPRETED',
    'tsp_sizes': 'datasets.tsp.SIZES',
}


BY_OPERATORS = {'cpu': 0, 'gpu': 0, 'kernels': 0}  # no graph is small
OF_OPERATORS = (
    'attention_chunk',
    'fused_devices',
    'fused_rows',
    'input_chunk',
    'paired',
    'state_elements',
    'state_programs',
)


def set_constants(assign: Callable[[Any, str, Any], None] = setattr, **values: Any) -> None:
    """Assigns values to constants by their names above; a function returns the value from then on.

    With a constant of the operators, small graphs are computed by operators, too."""
    if any(name in values for name in OF_OPERATORS):
        values = {'plain_elements': BY_OPERATORS, **values}
    for name, value in values.items():
        path, _, attribute = CONSTANTS[name].rpartition('.')
        is_absolute = path.startswith('benchmarks.')
        module = import_module(path if is_absolute else f'torch_geometric_lgt.{path}')
        replace_function = callable(getattr(module, attribute))
        assign(module, attribute, _returns(value) if replace_function else value)


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value
