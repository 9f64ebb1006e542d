from torch_geometric_lgt.data._write import write_graph
from torch_geometric_lgt.data.mapped_graph import MappedGraph

__all__ = ['MappedGraph', 'write_graph']
