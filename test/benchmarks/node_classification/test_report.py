from benchmarks.node_classification.report import report


def test_no_result_at_all(tmp_path):
    assert report(tmp_path, tmp_path) == ''
    assert list(tmp_path.iterdir()) == []
