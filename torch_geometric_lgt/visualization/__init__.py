r"""Plots of what attention has learned; needs the ``visualization`` extra (matplotlib)."""

from torch_geometric_lgt.visualization._figure import COLORS as COLORS
from torch_geometric_lgt.visualization.attention_report import plot_attention_report
from torch_geometric_lgt.visualization.latent_structure import plot_latent_structure

__all__ = ['plot_attention_report', 'plot_latent_structure']
