import importlib
import inspect
from pathlib import Path

from torch_geometric_lgt import __version__

project = 'torch_geometric_lgt'
author = 'torch_geometric_lgt contributors'
copyright = author
version = release = __version__

extensions = ['sphinx.ext.autodoc', 'sphinx.ext.autosummary', 'sphinx.ext.napoleon', 'sphinx.ext.mathjax', 'sphinx.ext.viewcode']
exclude_patterns = ['_build']
html_theme = 'furo'
html_title = f'{project} {version}'

autosummary_generate = False
autodoc_default_options = {'members': True, 'member-order': 'bysource'}
autodoc_inherit_docstrings = False
autodoc_typehints = 'signature'
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ['Shapes']

API_PAGES = {'nn': 'Layers', 'functional': 'Functions', 'transforms': 'Transforms'}


def write_api_page(name: str, title: str, folder: Path) -> None:
    """Writes the page of one public module from its ``__all__``, so that no exported name can be missing."""
    module = importlib.import_module(f'torch_geometric_lgt.{name}')
    names = [f'{module.__name__}.{entry}' for entry in module.__all__]
    heading = f'{title}: ``{module.__name__}``'
    lines = [heading, '=' * len(heading), '', '.. autosummary::', '   :nosignatures:', '']
    lines += [f'   {entry}' for entry in names]
    for entry in module.__all__:
        directive = 'autoclass' if inspect.isclass(getattr(module, entry)) else 'autofunction'
        lines += ['', f'.. {directive}:: {module.__name__}.{entry}']
    text = '\n'.join(lines) + '\n'
    page = folder / f'{name}.rst'
    if not page.exists() or page.read_text(encoding='utf-8') != text:
        page.write_text(text, encoding='utf-8')


generated = Path(__file__).parent / 'generated'
generated.mkdir(exist_ok=True)
for module_name, page_title in API_PAGES.items():
    write_api_page(module_name, page_title, generated)
