from collections.abc import Iterable

from torch import Tensor, UntypedStorage
from torch.autograd.graph import saved_tensors_hooks


class SavedStorages(saved_tensors_hooks):
    """Collects the storages that autograd saves within the context, each once.

    It holds them, so that a later storage never has the address of a freed one. Storages of
    ``known`` tensors, as those of parameters, do not count."""

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        addresses = {x.untyped_storage().data_ptr() for x in known}
        self.storages: dict[int, UntypedStorage] = {}

        def pack(x: Tensor) -> Tensor:
            storage = x.untyped_storage()
            if storage.data_ptr() not in addresses:
                self.storages[storage.data_ptr()] = storage
            return x

        super().__init__(pack, lambda x: x)

    def __enter__(self) -> 'SavedStorages':
        super().__enter__()
        return self

    @property
    def sizes(self) -> list[int]:
        """The bytes of each storage."""
        return [storage.nbytes() for storage in self.storages.values()]
