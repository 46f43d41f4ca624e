"""Flower's SuperLink and SuperNode as we start them: a certificate that is renewed, and apps that are forked."""

import os
import signal
import socket
import ssl
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from local_grid import Message

from fedadmm.core.errors import InputError
from fedadmm.flower.local import superexec, superlink, supernode
from fedadmm.flower.local.supernode import superexec_command
from fedadmm.flower.prompt_grid import PromptGrid, prompt


def certificate(folder: Path, name: str) -> bytes:
    """Make a key and a certificate, and return the latter as a client sees it."""
    make = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN={name}"
    files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
    subprocess.run([*make.split(), *files], check=True, capture_output=True)
    return ssl.PEM_cert_to_DER_cert((folder / f"{name}.pem").read_text())


def install(folder: Path, name: str, *kinds: str) -> None:
    """Put a certificate, its key, or both where the server has its own."""
    for kind in kinds:
        (folder / f"{name}.{kind}.new").write_bytes((folder / f"{name}.{kind}").read_bytes())
        (folder / f"{name}.{kind}.new").replace(folder / f"server.{kind}")


@pytest.mark.deployment  # a server in a thread: in a process of its own, with those of the SuperLink
def test_new_connections_get_a_renewed_certificate_and_open_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = certificate(tmp_path, "first"), certificate(tmp_path, "second")
    install(tmp_path, "first", "pem", "key")
    looks: list[superlink.RenewedCertificate] = []
    monkeypatch.setitem(vars(uvicorn.config), "create_ssl_context", uvicorn.config.create_ssl_context)
    # The test says when it looks.
    monkeypatch.setattr(superlink.RenewedCertificate, "keep_looking", lambda own: looks.append(own))
    superlink.follow_certificates()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    files = {"ssl_certfile": str(tmp_path / "server.pem"), "ssl_keyfile": str(tmp_path / "server.key")}
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, lifespan="off", ws="none", log_level="error", **files))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE

    def connected() -> ssl.SSLSocket:
        return trusting.wrap_socket(socket.create_connection(listening.getsockname(), timeout=10))

    def answer(connection: ssl.SSLSocket) -> bytes:
        connection.sendall(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")
        found = b""
        while not found.endswith(b"ok"):
            found += connection.recv(4096)
        return found

    try:
        with connected() as opened:
            assert opened.getpeercert(binary_form=True) == first
            assert b"200 OK" in answer(opened)
            (look,) = looks
            assert not look.look()  # nothing has changed
            install(tmp_path, "second", "pem")  # and its key is still on its way
            assert not look.look()
            with connected() as other:
                assert other.getpeercert(binary_form=True) == first
            install(tmp_path, "second", "key")
            assert look.look()
            with connected() as other:
                assert other.getpeercert(binary_form=True) == second
                assert b"200 OK" in answer(other)
            assert b"200 OK" in answer(opened)
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listening.close()


def spec_of(**changes: Any) -> Any:
    given = {"task_type": superexec.TaskType.CLIENT_APP, "root_certificates_path": None, "insecure": True}
    given |= {"runtime_api_address": "127.0.0.1:1", "token": "t", "parent_pid": None}
    return SimpleNamespace(**(given | {"runtime_dependency_install": False} | changes))


def test_each_message_has_a_process_of_its_own_which_has_all_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(**given: Any) -> None:
        (tmp_path / str(os.getpid())).write_text(given["token"])
        if given["token"] == "fails":
            raise ValueError("told on standard error")

    monkeypatch.setattr(superexec, "run_clientapp", work)
    executor = superexec.ForkingExecutor(node=os.getppid())
    for token in ("first", "second", "fails"):
        assert executor.launch(spec_of(token=token)).status == "accepted"
    deadline = time.monotonic() + 20
    while executor._children and time.monotonic() < deadline:
        executor.reconcile()
        time.sleep(0.01)
    assert not executor._children
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert sorted(written.values()) == ["fails", "first", "second"]
    assert str(os.getpid()) not in written


def test_a_message_that_does_not_end_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superexec, "run_clientapp", lambda **given: time.sleep(60))
    executor = superexec.ForkingExecutor(node=os.getppid())
    executor.launch(spec_of())
    executor.reconcile()
    (child,) = executor._children
    os.kill(child, signal.SIGTERM)  # which is not the handler of this process
    while executor._children:
        executor.reconcile()


def test_a_superexec_whose_node_has_ended_serves_no_other() -> None:
    with pytest.raises(SystemExit, match="the SuperNode of this SuperExec has ended"):
        superexec.ForkingExecutor(node=os.getppid() + 1).reconcile()


def test_a_port_that_another_node_has_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supernode.subprocess, "Popen", lambda *_, **__: pytest.fail("a SuperExec was started"))
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(InputError, match=rf"port {port} of 127.0.0.1 cannot be used: .*; give each node"):
            supernode.run_supernode(["--superlink", "link:8000", "--port", port])
    supernode.check_port(superexec_command(["--port", port], parent=17))


def test_the_superexec_asks_the_nodes_own_port_and_ends_with_it() -> None:
    command = superexec_command(["--superlink", "link:8000", "--host", "0.0.0.0", "--port", "9100"], parent=17)
    assert command[1:3] == ["-m", "fedadmm.flower.local.superexec"]
    assert command[3:] == ["--runtime-api-address", "127.0.0.1:9100", "--insecure", "--parent-pid", "17"]
    secure = superexec_command(["--ssl-ca-certfile", "ca.crt"], parent=17)
    assert secure[3:7] == ["--runtime-api-address", "127.0.0.1:9094", "--root-certificates", "ca.crt"]
    with pytest.raises(InputError, match="--isolation subprocess is decided here"):
        superexec_command(["--isolation", "subprocess"], parent=17)


class Post(PromptGrid):
    """A grid whose replies come one after the other, each when it is looked for often enough."""

    def __init__(self, replies: int) -> None:
        self.looks, self.replies, self._incoming = 0, replies, {}

    def push_messages(self, messages: list[str]) -> list[str]:
        return messages

    def pull_messages(self, ids: set[str]) -> list[Any]:
        self.looks += 1
        found = sorted(ids)[:1] if self.replies else []
        self.replies -= len(found)
        return [SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=each)) for each in found]


def test_replies_are_looked_for_more_often_and_the_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("fedadmm.flower.prompt_grid.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("fedadmm.flower.prompt_grid.time.sleep", lambda s: clock.__setitem__(0, clock[0] + s))
    messages: list[Any] = ["a", "b"]
    post: Any = Post(replies=2)
    assert len(list(post.send_and_receive(messages, timeout=60))) == 2
    assert clock[0] == pytest.approx(0.1)  # one pause
    post, clock[0] = Post(replies=1), 0.0
    assert len(list(post.send_and_receive(messages, timeout=60))) == 1
    assert clock[0] == pytest.approx(60)
    # Pauses of 0.1 for two seconds, and then of a twentieth: some 20 + log(30) / log(1.05) = 90 looks.
    assert 80 < post.looks < 100
    assert list(post.send_and_receive([], timeout=None)) == []


def test_grids_that_answer_at_once_stay_as_they_are() -> None:
    grid: Any = SimpleNamespace(message=Message)
    assert prompt(grid, most_bytes=1) is grid
