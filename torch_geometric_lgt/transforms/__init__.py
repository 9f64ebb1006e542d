from torch_geometric_lgt.transforms.node_degree import NodeDegree

__all__ = ['NodeDegree']
