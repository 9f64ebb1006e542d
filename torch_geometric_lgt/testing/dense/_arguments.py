from torch import Tensor


def check_known(argument: str, value: str, known: tuple[str, ...]) -> None:
    r"""Raises a ValueError, which names the :obj:`argument`, unless its value is one of
    :obj:`known`."""
    if value not in known:
        raise ValueError(f"'{argument}' must be one of {known} (got {value!r})")


def same_graph(
    queries: Tensor, keys: Tensor, batch_q: Tensor | None, batch_k: Tensor | None
) -> Tensor:
    r"""Returns a matrix ``[N_t, N_s]`` with 1 for each query and key of the same graph and 0 for
    others. Without graph ids all are in one graph.

    Raises:
        ValueError: If one of the two vectors of graph ids is missing.
    """
    if (batch_q is None) != (batch_k is None):
        raise ValueError("'batch_q' and 'batch_k' must both be given, or neither (got one)")
    if batch_q is None or batch_k is None:
        return queries.new_ones(queries.shape[0], keys.shape[0])
    return (batch_q[:, None] == batch_k[None, :]).to(queries.dtype)
