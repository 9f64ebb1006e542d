"""A data set that two processes ask for at once."""

import contextlib

from torch_geometric_lgt.datasets import SBMDataset


def make_clusters(root, log):
    """Makes 200 graphs, with the progress in a file."""
    with log.open('w') as file, contextlib.redirect_stderr(file):
        SBMDataset(root, 'CLUSTER', num_graphs=200)
