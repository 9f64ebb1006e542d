from torch_geometric_lgt.datasets.interactions import InteractionDataset

__all__ = ['InteractionDataset']
