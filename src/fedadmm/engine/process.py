"""How a process runs torch: on how many threads, and what memory it keeps.

Freed memory is kept for the next step: asked for anew from the kernel, every page of it would be a fault. The two
functions for it change glibc's allocator for the whole process. They are called where a process is ours (a worker),
and where stacks of clients are run; they change no number.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Run torch on this many threads."""
    usual = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread, so that sums do not depend on the machine, and leave its random state alone."""
    with threads(1), torch.random.fork_rng(devices=[]):
        yield


KEPT_BYTES = 2**30
LARGEST_KEPT = 2**28  # bytes of a block; larger ones go back to the kernel, or a large model would be held twice
LARGEST_LEARNED = (32 << 20) - 4096  # bytes


def keep_freed_memory() -> None:
    """Ask glibc to keep what is freed: a step frees gradients as large as the model, and asks for them again."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(-1, KEPT_BYTES)  # M_TRIM_THRESHOLD
            libc.mallopt(-3, LARGEST_KEPT)  # M_MMAP_THRESHOLD


def keep_freed_blocks() -> None:
    """Let glibc see a block of 32 MB come and go, the largest that it learns from: it keeps smaller ones from then on.

    Unlike `keep_freed_memory` this leaves the allocator of a user's process to its own rules.
    """
    torch.empty(LARGEST_LEARNED, dtype=torch.uint8)
