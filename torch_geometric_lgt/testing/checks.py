r"""Checks any layer, model, transform or loader for the promises that this package's classes
keep."""

from torch_geometric_lgt.testing._layer_checks import check_layer
from torch_geometric_lgt.testing._loader_checks import check_loader
from torch_geometric_lgt.testing._model_checks import check_model
from torch_geometric_lgt.testing._transform_checks import check_transform

__all__ = ['check_layer', 'check_loader', 'check_model', 'check_transform']
