"""A SuperExec of Flower's that has imported what apps need, and forks a process for each message of a node.

Flower's own starts Python for each message, which then imports Flower and torch: nearly all that a small message
costs. A forked process has them, and is as separate from the next as before: nothing lasts from message to message.

python -m fedadmm.flower.local.superexec ARGUMENTS OF flower-superexec
"""

import gc
import os
import signal
import sys
import traceback
from typing import Any, NoReturn

from flwr.supercore.cli import flower_superexec
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult
from flwr.supercore.tls import validate_and_resolve_root_certificates
from flwr.supernode.runtime.run_clientapp import run_clientapp

import fedadmm.flower.apps  # noqa: F401 (what a node's app imports, torch with it)


class ForkingExecutor(SubprocessExecutor):
    """Runs a node's app in a fork of this process, and what else there is as Flower does."""

    def __init__(self, *, node: int) -> None:
        self._node, self._children = node, set[int]()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Start a process for a message."""
        if spec.task_type != TaskType.CLIENT_APP:
            return super().launch(spec)
        child = os.fork()
        if child == 0:
            _work(spec)
        self._children.add(child)
        return LaunchResult.accepted()

    def reconcile(self) -> None:
        """Let go of processes that have ended; Flower calls it before it asks for work.

        An executor whose node has ended ends too. Flower sends it SIGINT then, which a shell may have switched off,
        and another node that has got the port would be served by it.
        """
        if os.getppid() != self._node:
            raise SystemExit("the SuperNode of this SuperExec has ended")
        self._children = {child for child in self._children if os.waitpid(child, os.WNOHANG) == (0, 0)}


def _work(spec: ExecutionSpec) -> NoReturn:
    """Run a node's app on a message, in a process that ends with it."""
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # until the app has its own
            signal.signal(number, signal.SIG_DFL)
        certificates = validate_and_resolve_root_certificates(spec.root_certificates_path, spec.insecure)
        run_clientapp(
            runtime_api_address=spec.runtime_api_address,
            token=spec.token,
            insecure=spec.insecure,
            certificates=certificates,
            parent_pid=spec.parent_pid,
            runtime_dependency_install=spec.runtime_dependency_install,
        )
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Run Flower's SuperExec with the executor that forks."""

    node = int(sys.argv[sys.argv.index("--parent-pid") + 1])

    def get_executor(*_: Any, **__: Any) -> ForkingExecutor:
        return ForkingExecutor(node=node)

    vars(run_superexec)["get_executor"] = get_executor
    gc.freeze()  # what was imported stays shared with the forks
    flower_superexec()


if __name__ == "__main__":
    main()
