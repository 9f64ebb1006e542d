"""What only a GPU has: streams, its own compiler and its memory; and scaled gradients, which the
CPU has too."""

import copy

import pytest
import torch
from cuda_cases import LAYERS, MODELS, X, make, results

from torch_geometric_lgt.nn import SGFormer

pytestmark = pytest.mark.cuda
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason='it needs a CUDA device')


@needs_cuda
@pytest.mark.parametrize('name', LAYERS)
@pytest.mark.usefixtures('deterministic')
def test_two_streams_at_once_give_what_one_gives(name, device):
    module, _, call = make(name, device, torch.float32)
    inputs = [X.to(device), 2 * X.to(device)]
    expected = [results(module, call, x) for x in inputs]
    torch.cuda.synchronize()
    streams, outputs = [torch.cuda.Stream() for _ in inputs], []
    for stream, x in zip(streams, inputs, strict=True):
        with torch.cuda.stream(stream):
            outputs.append([results(module, call, x) for _ in range(5)])
    torch.cuda.synchronize()
    for repeats, one in zip(outputs, expected, strict=True):
        for repeat in repeats:
            assert all(torch.equal(repeat[part], value) for part, value in one.items())


@needs_cuda
@pytest.mark.compiled
@pytest.mark.parametrize('name', LAYERS)
def test_compiled_for_the_device(name, device):
    module, _, call = make(name, device, torch.float32)
    expected = results(module, call, X.to(device))
    actual = results(torch.compile(module, fullgraph=True), call, X.to(device))
    for part, value in actual.items():
        torch.testing.assert_close(
            value, expected[part.removeprefix('_orig_mod.')], rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize('name', MODELS)
def test_scaled_gradients_make_the_step_of_single_precision(name, device):
    """In half precision a loss is scaled up, so that small gradients do not vanish, and the step is
    scaled down."""
    module, _, call = make(name, device, torch.float32)
    x, steps = X.to(device), {}
    for dtype in (torch.float32, torch.float16):
        model = copy.deepcopy(module)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        with torch.autocast(device.type, dtype, enabled=dtype == torch.float16):
            loss = call(model, x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        steps[dtype] = torch.cat(
            [
                (new - old).detach().flatten()
                for new, old in zip(model.parameters(), module.parameters(), strict=True)
            ]
        )
    exact, half = steps[torch.float32], steps[torch.float16]
    assert half.isfinite().all()
    assert float((half - exact).norm()) < 0.1 * float(exact.norm())


@needs_cuda
def test_too_little_memory_ends_with_advice(device):
    model, x = SGFormer(128, 256, 40).to(device), torch.randn(900_000, 128, device=device)
    before = torch.cuda.get_per_process_memory_fraction(device)
    torch.cuda.empty_cache()
    limit = torch.cuda.memory_reserved(device) + 2**29
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(limit / total, device)
    try:
        with pytest.raises(
            torch.OutOfMemoryError,
            match=(
                r'SGFormer has no memory for 900000 nodes at once .* score with the method '
                r"'inference'"
            ),
        ):
            model(x, torch.empty(2, 0, dtype=torch.long, device=device))
    finally:
        torch.cuda.set_per_process_memory_fraction(before, device)
