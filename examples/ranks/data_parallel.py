"""The small transformer, trained data-parallel: the same bits on any number of ranks.

``mpiexec -n 3 python examples/ranks/data_parallel.py --micro-batches 2`` prints a digest of the
weights, which depends neither on the ranks nor on the micro-batches. With ``--checkpoint FILE``
the state after half of the steps is saved there, and a run that finds the file resumes from it. It
needs mpi4py.

Gradients of matrix products are gathered and added in the order of the sequences: BATCH of them go
through the network, where an all-reduce would send two. Those of the norms are one bucket of
partials.
"""

import argparse
import os
import signal
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from sequences import Parallel, Partials, Text
from transformer import WIDTH, Adam, Array, Model, Parameters, batches, parameters

import truenorm as tn


@dataclass
class Trainer:
    """Training steps of all ranks."""

    comm: Any
    micro_batches: int
    plain: bool = False
    adam: Adam = field(default_factory=lambda: Adam(parameters(Model, np.float32)))
    steps: int = 0
    gathered: int = 0
    reduced: int = 0

    @property
    def others(self) -> list[str]:
        """Names of the parameters that do not belong to norms."""
        return [name for name in self.adam.p if not name.endswith((".gamma", ".beta"))]

    def step(self, text: Text, *, dies: bool = False) -> float:
        """Train on a batch; return the loss."""
        norms, total = self._of_no_rows(), np.float32(0)
        self.gathered = 0
        for micro_batch in np.array_split(text, self.micro_batches):
            partials, vectors = self._micro_batch(micro_batch)
            norms |= {name: norms[name] + each for name, each in partials.items()}
            for vector in vectors:
                total = total + vector
            self.gathered += vectors.nbytes
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        *others, loss = np.split(total / np.float32(len(text)), self._ends())
        gradients = {
            name: vector.reshape(self.adam.p[name].shape)
            for name, vector in zip(self.others, others, strict=True)
        }
        self.steps += 1
        merge = self._rounded_first if self.plain else self._rounded_last
        self.adam.step(self.steps, gradients | merge(norms, len(text)))
        return float(loss[0])

    def _of_no_rows(self) -> Partials:
        """Return partials of no rows: the start of sums, and those of ranks without sequences."""
        model, nothing = Parallel(self.adam.p, 0), np.empty((0, WIDTH), np.float32)
        for name in self.adam.p:
            if name.endswith(".gamma"):
                model.norm(name.removesuffix(".gamma"), nothing)[1](nothing)
        return model.partials

    def _ends(self) -> NDArray[np.intp]:
        return np.cumsum([self.adam.p[name].size for name in self.others])

    def _micro_batch(self, text: Text) -> tuple[Partials, Array]:
        """Process sequences of this rank; return the gradients and losses of all, in order."""
        shares = np.array_split(text, self.comm.size)
        mine = shares[self.comm.rank]
        model = Parallel(self.adam.p, len(mine))
        if len(mine):
            model.loss(mine)[1]()
        width = int(self._ends()[-1]) + 1
        vectors = np.empty((len(mine), width), np.float32)
        for vector, of_one, loss in zip(vectors, model.of_sequences, model.losses, strict=True):
            vector[:-1] = np.concatenate([of_one[name].ravel() for name in self.others])
            vector[-1] = loss
        everything = np.empty((len(text), width), np.float32)
        self.comm.Allgatherv(vectors, [everything, [len(each) * width for each in shares]])
        return model.partials, everything

    def _rounded_last(self, norms: Partials, batch: int) -> Parameters:
        """Merge the partials of all ranks, all norms at once, and round them once."""
        merged = tn.ranks.allreduce(list(norms.values()), self.comm)
        self.reduced = sum(each.to_words(each.extent()).nbytes for each in merged)
        rounded = (each.rounded(divide_by=batch) for each in merged)
        return _named(norms, [np.stack(each[:2]) for each in rounded])  # type: ignore[arg-type]

    def _rounded_first(self, norms: Partials, batch: int) -> Parameters:
        """Round on each rank, then add in float32, as is usual."""
        rounded = (each.rounded() for each in norms.values())
        bucket = np.array([(each.dgamma, each.dbeta) for each in rounded], np.float32)
        self.comm.Allreduce(MPI.IN_PLACE, bucket, op=MPI.SUM)
        self.reduced = bucket.nbytes
        return _named(norms, list(bucket / np.float32(batch)))

    def save(self, file: Path) -> None:
        """Write the state atomically."""
        if self.comm.rank == 0:
            beside = file.with_suffix(".new.npz")
            adam, state = self.adam, {"steps": np.array(self.steps)}
            for kind in ("p", "first", "second"):
                state |= {f"{kind} {name}": each for name, each in getattr(adam, kind).items()}
            np.savez(beside, **state)  # type: ignore[arg-type]
            beside.replace(file)
        self.comm.Barrier()

    def load(self, file: Path) -> None:
        """Resume from a saved state."""
        with np.load(file) as state:
            self.steps = int(state["steps"])
            for key in set(state) - {"steps"}:
                kind, name = key.split()
                getattr(self.adam, kind)[name] = state[key]


def _named(norms: Partials, pairs: list[Array]) -> Parameters:
    """Return gradients of gamma and beta by the names of the parameters."""
    names = [(f"{norm}.gamma", f"{norm}.beta") for norm in norms]
    return {
        name: each
        for both, pair in zip(names, pairs, strict=True)
        for name, each in zip(both, pair, strict=True)
    }


def main() -> int:
    """Train, and print a digest of the weights."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batches", type=int, default=1, help="of a batch of 16")
    parser.add_argument("--checkpoint", type=Path, help="a file, FILE.npz")
    parser.add_argument("--kill-at", type=int, default=0, help="a step that kills the last rank")
    parser.add_argument("--plain", action="store_true", help="round the norms' sums rank by rank")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    trainer = Trainer(comm, options.micro_batches, options.plain)
    if options.checkpoint and options.checkpoint.exists():
        trainer.load(options.checkpoint)
    first, losses = trainer.steps + 1, []
    for step, text in enumerate(batches(options.steps), start=1):
        if step < first:
            continue
        dies = step == options.kill_at and comm.rank == comm.size - 1
        losses.append(trainer.step(text, dies=dies))
        if options.checkpoint and step == options.steps // 2:
            trainer.save(options.checkpoint)
    if comm.rank == 0:
        print(f"ranks {comm.size}, micro-batches {options.micro_batches}: ", end="")
        print(f"steps {first} to {options.steps}")
        print("loss", " -> ".join(f"{losses[k]:.3f}" for k in (0, -1) if losses))
        print(
            f"a step: {trainer.gathered} bytes gathered, {trainer.reduced} reduced for the norms"
        )
        weights = b"".join(trainer.adam.p[name].tobytes() for name in sorted(trainer.adam.p))
        print(f"weights {sha256(weights).hexdigest()[:32]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
