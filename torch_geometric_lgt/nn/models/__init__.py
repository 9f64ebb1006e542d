from torch_geometric_lgt.nn.models.mgformer import MGFormer

__all__ = ['MGFormer']
