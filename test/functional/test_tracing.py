from torch_geometric_lgt.functional import tracing


def test_values_are_not_read_while_a_cuda_graph_is_captured(monkeypatch):
    assert tracing.may_read_values()
    monkeypatch.setattr(tracing, 'is_capturing', lambda: True)
    assert not tracing.may_read_values()
