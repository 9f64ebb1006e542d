"""The order of the examples: a first look, then the tasks by the size of the data."""

NAMES = (
    'ten_minutes',
    'nodes',
    'many_graphs',
    'large_graph',
    'recommend',
    'encodings',
)


class GalleryOrder:
    """Sorts the files of a folder of sphinx-gallery by :obj:`NAMES`."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> int:
        return NAMES.index(file.removeprefix('plot_').removesuffix('.py'))
