r"""Checks whether a layer, model, transform or loader keeps the promises of this package's classes,
also for classes of other packages."""

from torch_geometric_lgt.testing._layer_checks import check_layer
from torch_geometric_lgt.testing._loader_checks import check_loader
from torch_geometric_lgt.testing._model_checks import check_model
from torch_geometric_lgt.testing._transform_checks import check_transform

__all__ = ['check_layer', 'check_loader', 'check_model', 'check_transform']
