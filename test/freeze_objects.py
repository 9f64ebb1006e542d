"""Imported last by the fork server: nothing looks through the objects of its imports again, in its
forks neither, which would copy their memory."""

import gc


def freeze(_worker=0):
    """Leaves the objects of a process to its end, which would look through them for a second."""
    gc.freeze()


freeze()
