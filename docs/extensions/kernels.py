"""The kernels of pages with cells: forked from the build, which has imported what they import, instead of started."""

import asyncio
import logging
import os
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner
from sphinx.application import Sphinx

NAME = "forked"  # as jupyter/kernels/site/kernel.json has it


class _Forked(get_context("fork").Process):
    """A process with the methods of `subprocess.Popen` that a provisioner calls."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> int | None:
        self.join()
        return self.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class ForkedKernel(LocalProvisioner):
    """Forks kernels of this Python."""

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        """Start the kernel of a command: a Python, -m, ipykernel_launcher and arguments."""
        self.process = _Forked(target=_kernel, args=(cmd[3:], options.get("cwd"), options["env"]))
        self.process.start()
        self.pid = self.process.pid
        return self.connection_info


def _kernel(arguments: list[str], folder: str | None, environment: dict[str, str]) -> None:
    os.chdir(folder or ".")
    os.environ.clear()
    os.environ.update(environment)
    logging.getLogger().handlers.clear()  # the build's own
    asyncio._set_running_loop(None)
    asyncio.set_event_loop(asyncio.new_event_loop())
    IPKernelApp.launch_instance(argv=[*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])  # with which it ends


def setup(app: Sphinx) -> dict[str, bool]:
    """Make the way known of which the kernel's description speaks."""
    KernelProvisionerFactory.instance().provisioners[NAME] = SimpleNamespace(load=lambda: ForkedKernel)
    return {"parallel_read_safe": True}
