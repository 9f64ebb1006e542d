r"""The neighbour sampler of the package beside the compiled one that PyG has at hand (pyg-lib or torch-sparse), in turn in one process.

python -m benchmarks.runtime.loaders                 # one million nodes, ten million edges
"""

import argparse
import statistics
import warnings
from collections.abc import Callable

import torch
import torch_geometric.sampler
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

from benchmarks.common.results import write_result
from benchmarks.runtime.measure import seconds
from benchmarks.runtime.transform_cases import regular, rmat
from torch_geometric_lgt.loader import NeighborSampler

GRAPHS: dict[str, Callable[[], Data]] = {'regular-1M-nodes': lambda: regular(1_000_000, 10), 'rmat-10M-edges': lambda: rmat(20, 5_500_000)}


def measure(data: Data, fan_out: list[int], batch_size: int, batches: int, rounds: int) -> dict[str, list[float]]:
    r"""Seconds per batch of each sampler, by with or without replacement."""
    found: dict[str, list[float]] = {}
    for replace in (False, True):
        samplers = {
            'ours': NeighborSampler(data, fan_out, replace),
            'compiled': torch_geometric.sampler.NeighborSampler(data, fan_out, replace=replace),
        }
        for _ in range(rounds):
            seeds = torch.randperm(data.num_nodes)[: batch_size * batches].split(batch_size)
            for name, sampler in samplers.items():

                def run(sampler=sampler, seeds=seeds) -> None:
                    for part in seeds:
                        sampler.sample_from_nodes(NodeSamplerInput(part, part))

                found.setdefault(f'{name}{"_replace" if replace else ""}', []).extend(time / batches for time in seconds(run, 1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--graphs', nargs='+', choices=GRAPHS, default=[*GRAPHS])
    parser.add_argument('--fan-out', nargs='+', type=int, default=[15, 10, 5])
    parser.add_argument('--batch-size', type=int, default=1024)
    parser.add_argument('--batches', type=int, default=10)
    parser.add_argument('--rounds', type=int, default=5)
    args = parser.parse_args()
    warnings.filterwarnings('ignore', "Using 'NeighborSampler' without")
    for graph in args.graphs:
        data = GRAPHS[graph]()
        found = measure(data, args.fan_out, args.batch_size, args.batches, args.rounds)
        config = {'fan_out': args.fan_out, 'batch_size': args.batch_size, 'nodes': data.num_nodes, 'edges': data.num_edges}
        print(write_result('runtime', graph, 'neighbor-sampler', variant='', protocol='in-turn', seeds=[0], metrics=found, config=config))
        for suffix in ('', '_replace'):
            ours, compiled = (statistics.median(found[f'{name}{suffix}']) for name in ('ours', 'compiled'))
            print(f'{graph}{suffix}: {1e3 * ours:.1f} ms a batch, {ours / compiled:.2f} times the compiled {1e3 * compiled:.1f} ms')


if __name__ == '__main__':
    main()
