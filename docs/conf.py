import importlib
import inspect
import os
import re
import sys
from functools import partialmethod
from pathlib import Path

import torch
from docutils import nodes
from sphinx.application import Sphinx
from tqdm import tqdm

from torch_geometric_lgt import __version__

sys.path.insert(0, str(Path(__file__).parent))
import faults
import gpu
import mutants

project = 'torch_geometric_lgt'
author = 'torch_geometric_lgt contributors'
copyright = author
version = release = __version__

extensions = [
    'myst_parser',
    'sphinx.ext.autodoc',
    'sphinx.ext.napoleon',
    'sphinx.ext.mathjax',
    'sphinx.ext.viewcode',
    'sphinx_copybutton',
    'sphinx_design',
    'sphinx_gallery.gen_gallery',
]
exclude_patterns = ['_build', 'gallery']
html_theme = 'furo'
html_title = f'{project} {version}'
html_static_path = ['_static']
html_css_files = ['style.css']
copybutton_prompt_text = r'>>> |\.\.\. |\$ '
copybutton_prompt_is_regexp = True

# The examples of the gallery are small, and their pages show no progress bars.
torch.set_num_threads(1)
tqdm.__init__ = partialmethod(tqdm.__init__, disable=True)
sphinx_gallery_conf = {
    'examples_dirs': 'gallery',
    'gallery_dirs': 'generated/gallery',
    'within_subsection_order': 'gallery_order.GalleryOrder',
    'doc_module': 'torch_geometric_lgt',
    'reference_url': {'torch_geometric_lgt': None},
    'show_signature': False,
    'write_computation_times': False,
    'download_all_examples': False,
}

# LGT_DOCS_INTERSPHINX=1 links the names of PyTorch and PyG to their pages, which needs the network.
if os.environ.get('LGT_DOCS_INTERSPHINX') == '1':
    extensions.append('sphinx.ext.intersphinx')
intersphinx_mapping = {
    'python': ('https://docs.python.org/3', None),
    'torch': ('https://docs.pytorch.org/docs/stable', None),
    'torch_geometric': ('https://pytorch-geometric.readthedocs.io/en/latest', None),
}

# Where "make docs-test" has put MathJax; without it, pages load MathJax from a CDN.
mathjax = Path(__file__).parent / '_build' / 'mathjax'
if mathjax.exists():
    html_static_path.append(str(mathjax))
    mathjax_path = 'tex-chtml-full.js'
toc_object_entries_show_parents = 'hide'

# What a model says of its layers for inference over batches; a user calls none of them.
STREAMING = [
    'attentions',
    'check_inputs',
    'degree_edges',
    'from_stream',
    'input_layer',
    'layer',
    'layer_channels',
    'layer_edges',
    'layer_rows',
    'layer_state',
    'layers',
    'part_context',
    'prepare_edges',
    'readout',
    'scores_of_pairs',
    'step',
    'stream_layers',
    'stream_local_branch',
    'stream_scores',
    'uses_degrees',
]
# What reports of the attention read of a layer; a user calls none of them.
MEASURED = ['data_normalizer', 'mask_weights', 'project_values']
# Methods of PyG's message passing that end in an error: the layers have no messages.
HOOKS = [
    f'register_{step}_forward_{hook}'
    for step in ('message', 'aggregate', 'message_and_aggregate', 'edge_update', 'propagate')
    for hook in ('hook', 'pre_hook')
]
autodoc_default_options = {
    'members': True,
    'member-order': 'bysource',
    'inherited-members': (
        'MessagePassing, Module, BaseTransform, InMemoryDataset, Dataset, FeatureStore, '
        'GraphStore, list, tuple'
    ),
    'exclude-members': ', '.join(['extra_repr', *HOOKS, *MEASURED, *STREAMING]),
}
autodoc_typehints = 'signature'
autodoc_preserve_defaults = True  # plain_call, not its address
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ['Shapes']


def unlink_addresses(_: object, doctree: nodes.document) -> None:
    """Leaves text such as NDCG@20 as it is, which docutils takes for the address of an e-mail."""
    for link in list(doctree.findall(nodes.reference)):
        if link.get('refuri', '').startswith('mailto:'):
            link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    """Sphinx calls this once."""
    app.connect('doctree-read', unlink_addresses)


API_PAGES = {
    'nn': 'Layers and models',
    'functional': 'Functions',
    'transforms': 'Transforms',
    'datasets': 'Data sets',
    'loader': 'Loaders',
    'data': 'Graphs in files',
    'diagnostics': 'Diagnostics',
    'visualization': 'Pictures',
    'distributed': 'Reductions over processes',
    'init': 'Starts of learned features',
    'convert': 'Parameters of other packages',
    'info': 'The environment of a report',
    'testing.checks': 'Checks of layers, models, transforms and loaders',
    'testing.dense': 'Dense definitions',
}


def summary(value: object) -> str:
    """Returns the first sentence of the docstring."""
    paragraph = (inspect.getdoc(value) or '').split('\n\n')[0] if callable(value) else ''
    return re.split(r'(?<!Eq)\.\s', ' '.join(paragraph.split()))[0].rstrip('.:,')


def has_no_noise(value: object) -> bool:
    """Tells whether a layer inherits the draw of Gumbel noise without an argument for it."""
    return hasattr(value, 'key_noise') and (
        'num_gumbel_samples' not in inspect.signature(value).parameters
    )


def write_api_page(name: str, title: str, folder: Path) -> None:
    """Writes the page of one public module from its ``__all__``, so that no exported name is
    missing."""
    module = importlib.import_module(f'torch_geometric_lgt.{name}')
    heading = f'{title}: ``{module.__name__}``'
    table, entries = ['.. list-table::', '   :widths: 30 70', ''], []
    for entry in module.__all__:
        value, path = getattr(module, entry), f'{module.__name__}.{entry}'
        table += [f'   * - :py:obj:`~{path}`', f'     - {summary(value)}']
        directive = (
            'autoclass'
            if inspect.isclass(value)
            else 'autofunction'
            if callable(value)
            else 'autodata'
        )
        entries += ['', f'.. {directive}:: {path}']
        if has_no_noise(value):
            entries.append('   :exclude-members: +key_noise')
    lines = [heading, '=' * len(heading), '', *table, *entries]
    write_page(folder / f'{name}.rst', '\n'.join(lines) + '\n')


def write_page(page: Path, text: str) -> None:
    """Writes a page, unless it has this text already: Sphinx reads only files with a new time."""
    if not page.exists() or page.read_text(encoding='utf-8') != text:
        page.write_text(text, encoding='utf-8')


generated = Path(__file__).parent / 'generated'
generated.mkdir(exist_ok=True)
for module_name, page_title in API_PAGES.items():
    write_api_page(module_name, page_title, generated)
write_page(generated / 'faults.rst', faults.page(Path(__file__).parents[1] / 'test'))
write_page(
    generated / 'gpu.rst', gpu.page(Path(__file__).parents[1] / 'benchmarks' / 'results' / 'gpu')
)
write_page(generated / 'mutants.rst', mutants.page(Path(__file__).parent / 'mutants.json'))
