from torch_geometric_lgt.datasets.interactions import InteractionDataset
from torch_geometric_lgt.datasets.sbm import SBMDataset
from torch_geometric_lgt.datasets.tsp import TSPDataset

__all__ = ['InteractionDataset', 'SBMDataset', 'TSPDataset']
