"""Nodes behind a proxy that passes on their own paths alone, as docs/SECURITY.md advises: they command nobody."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_grid import APP

from fedadmm.flower.local import LocalFederation
from fedadmm.flower.local.federation import free_ports

pytestmark = [pytest.mark.deployment, pytest.mark.slow]
PROXY = """
import sys

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

link, keys, port = sys.argv[1:]
client = httpx.AsyncClient(base_url=f"https://{link}", verify=f"{keys}/ca.crt", timeout=60)
OF_A_HOP = {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "content-encoding"}


def end_to_end(headers):
    return {name: value for name, value in headers.items() if name.lower() not in OF_A_HOP}


async def pass_on(request):
    path = request.url.path
    if not path.startswith("/v1/fleet/"):
        return Response(status_code=403)
    answer = await client.request(
        request.method, path, params=request.query_params, headers=end_to_end(request.headers),
        content=await request.body(),
    )
    return Response(answer.content, answer.status_code, headers=end_to_end(answer.headers))


app = Starlette(routes=[Route("/{path:path}", pass_on, methods=["GET", "POST", "PUT", "DELETE"])])
certificate = {"ssl_certfile": f"{keys}/server.pem", "ssl_keyfile": f"{keys}/server.key"}
uvicorn.run(app, host="127.0.0.1", port=int(port), **certificate)
"""


class BehindAProxy(LocalFederation):
    """A federation whose nodes know the proxy's address, and the operator the SuperLink's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)
        self.proxy: subprocess.Popen[bytes] | None = None

    @property
    def superlink_address(self) -> str:
        """The proxy's, which is all that nodes know."""
        return f"127.0.0.1:{self.port}"

    @property
    def past_the_proxy(self) -> str:
        """The SuperLink's own."""
        return super().superlink_address

    def start_node(self, name: str, *, port: int, config: str):
        if self.proxy is None:
            arguments = [self.past_the_proxy, str(self.folder / "keys"), str(self.port)]
            with self.log("proxy").open("wb") as log:
                self.proxy = subprocess.Popen([sys.executable, "-c", PROXY, *arguments], stdout=log, stderr=log)
            deadline = time.monotonic() + 60
            while "Uvicorn running" not in self.log("proxy").read_text():
                assert time.monotonic() < deadline, self.log("proxy").read_text()
                time.sleep(0.2)
        return super().start_node(name, port=port, config=config)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[BehindAProxy]:
    """Return two nodes that are connected, and end all of it afterwards."""
    made = BehindAProxy(tmp_path / "federation")
    try:
        made.up(num_nodes=2)
        yield made
    finally:
        made.down(patient=False)
        if made.proxy is not None:
            made.proxy.kill()
            made.proxy.wait()


def said(federation: LocalFederation, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the environment of an operator."""
    return subprocess.run(
        command,
        env=federation.command_environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def test_nodes_train_through_the_proxy_and_command_nobody(federation: BehindAProxy) -> None:
    changes = ["--set", "num-clients=2", "--set", "min-available-nodes=2", "--set", "num-server-rounds=2"]
    run = said(federation, "fedadmm", "federation", "run", str(APP), "--folder", str(federation.folder), *changes)
    assert run.returncode == 0, run.stdout
    assert "Round 2 applies 2 of 2" in run.stdout
    assert federation.online() == 2  # asked by the operator, past the proxy

    # Who knows the proxy's address only is refused: no list, no key of their own, no app.
    config = federation.folder / "flwr" / "config.toml"
    config.write_text(config.read_text().replace(federation.past_the_proxy, federation.superlink_address))
    federation.make_key("stranger")
    key = str(federation.folder / "keys" / "stranger.pub")
    for command in (["list", "lab"], ["supernode", "register", key, "lab"], ["run", str(APP), "lab"]):
        before = federation.log("proxy").read_text().count(" 403 ")
        refused = said(federation, "flwr", *command)
        assert refused.returncode != 0, refused.stdout
        assert federation.log("proxy").read_text().count(" 403 ") > before, refused.stdout
