"""Judge the kernels of a part on some processes."""

import sys
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from multiprocessing import get_context

import numpy as np

from tools.verdicts.kernels import PARTS
from tools.verdicts.projection import Fingerprint, fingerprint
from truenorm.tools.progress import status_line

AT_ONCE = 8
"""Kernels of one operation that a process judges with the same exact answers in memory."""


def judge_some(part: str, names: Sequence[str]) -> list[Fingerprint]:
    """Return the fingerprints of some kernels of a part."""
    fingerprints = []
    for each in PARTS[part]():
        if each.name in names:
            with np.errstate(all="ignore"):
                fingerprints.append(fingerprint(each.name, *each.judge()))
    return fingerprints


def run(part: str, jobs: int, words: Sequence[str] = ()) -> list[Fingerprint]:
    """Judge the kernels of a part whose names contain one of the words, on some processes."""
    kernels = [
        each for each in PARTS[part]() if not words or any(word in each.name for word in words)
    ]
    kernels.sort(key=lambda each: each.operation)
    batches = []
    for _, of_operation in groupby(kernels, key=lambda each: each.operation):
        names = [each.name for each in of_operation]
        batches += [names[k : k + AT_ONCE] for k in range(0, len(names), AT_ONCE)]
    done: list[Fingerprint] = []
    # New processes: the answers of all operations are gigabytes.
    with get_context("spawn").Pool(jobs, maxtasksperchild=4) as pool:
        for some in pool.imap_unordered(partial(judge_some, part), batches):
            done += some
            text = f"{part}: {len(done)} of {len(kernels)} kernels"
            status_line(text)
            if not sys.stderr.isatty():
                print(text, file=sys.stderr)
    status_line()
    return done
