from torch_geometric_lgt.loader.hgt_loader import HGTLoader
from torch_geometric_lgt.loader.link_neighbor_loader import LinkNeighborLoader
from torch_geometric_lgt.loader.neighbor_loader import NeighborLoader
from torch_geometric_lgt.loader.neighbor_sampler import NeighborSampler
from torch_geometric_lgt.loader.node_partition_loader import NodePartitionLoader

__all__ = [
    'HGTLoader',
    'LinkNeighborLoader',
    'NeighborLoader',
    'NeighborSampler',
    'NodePartitionLoader',
]
