from torch_geometric_lgt.datasets.interactions import InteractionDataset
from torch_geometric_lgt.datasets.sbm import SBMDataset

__all__ = ['InteractionDataset', 'SBMDataset']
