"""The engine host as a real process behind a real socket."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_process import PATIENCE_S, Hosts, fill, wait_until
from midspan_engine.framing import pack
from midspan_engine.protocol import (
    Failed,
    Filled,
    Idle,
    Shutdown,
    StatusRequest,
)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    yield hosts
    hosts.end()


@pytest.fixture
def nowhere(tmp_path: Path) -> Path:
    """A checkpoint folder that does not exist: the host says so and never imports torch."""
    return tmp_path / "no-such-checkpoint"


def test_folder_and_socket_are_closed_to_other_users(hosts: Hosts, nowhere: Path) -> None:
    hosts.start(nowhere)
    hosts.client()
    assert stat.S_IMODE(hosts.socket.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(hosts.socket.stat().st_mode) == 0o600


def test_folder_open_to_others_is_refused_with_advice(hosts: Hosts, nowhere: Path) -> None:
    hosts.socket.parent.mkdir()
    hosts.socket.parent.chmod(0o755)
    host = hosts.start(nowhere)
    assert host.wait(PATIENCE_S) == 2
    (line,) = hosts.log.read_text().splitlines()
    assert line.startswith("midspan: ")
    assert "chmod 700" in line


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to somebody else")
def test_folder_of_another_user_is_refused(hosts: Hosts, nowhere: Path) -> None:
    hosts.socket.parent.mkdir(mode=0o700)
    os.chown(hosts.socket.parent, 12345, 12345)
    host = hosts.start(nowhere)
    assert host.wait(PATIENCE_S) == 2
    assert "belongs to another user" in hosts.log.read_text()


def test_of_five_hosts_started_at_once_one_lives(hosts: Hosts, nowhere: Path) -> None:
    for _ in range(5):
        hosts.start(nowhere)
    wait_until(lambda: sum(host.poll() is not None for host in hosts.started) == 4)
    assert sorted(str(host.poll()) for host in hosts.started) == ["0", "0", "0", "0", "None"]
    (winner,) = [host for host in hosts.started if host.poll() is None]
    client = hosts.client()
    assert client.status().pid == winner.pid
    client.wait_for_state("failed")
    assert len(hosts.log.read_text().splitlines()) == 1, "only the winner may have something to say"


def test_socket_of_a_killed_host_is_taken_over(hosts: Hosts, nowhere: Path) -> None:
    first = hosts.start(nowhere)
    hosts.client()
    first.kill()
    first.wait(PATIENCE_S)
    assert hosts.socket.exists()
    second = hosts.start(nowhere)
    assert hosts.client().status().pid == second.pid


def test_more_clients_than_a_usual_queue_holds_may_connect_while_the_host_is_stalled(
    hosts: Hosts, nowhere: Path
) -> None:
    host = hosts.start(nowhere)
    hosts.client()
    os.kill(host.pid, signal.SIGSTOP)
    try:
        clients = [hosts.client() for _ in range(120)]
    finally:
        os.kill(host.pid, signal.SIGCONT)
    assert {client.status().pid for client in clients} == {host.pid}


def test_a_checkpoint_whose_name_is_not_unicode_is_named_in_status_and_error(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start(tmp_path / os.fsdecode(b"ck\xff"))
    client = hosts.client()
    client.wait_for_state("failed")
    status = client.status()
    assert status.checkpoint == f"{tmp_path}/ck?"
    assert "ck?" in str(status.error)
    reply = client.ask(fill())
    assert isinstance(reply, Failed)
    assert "ck?" in reply.message


def test_missing_checkpoint_is_told_to_every_fill_and_the_host_lives_on(hosts: Hosts, nowhere: Path) -> None:
    hosts.start(nowhere)
    client = hosts.client()
    for id in (1, 2):
        reply = client.ask(fill(id))
        assert isinstance(reply, Failed)
        assert reply.id == id
        assert reply.is_input
        assert str(nowhere) in reply.message
        assert "MIDSPAN_CHECKPOINT" in reply.message
    status = client.status()
    assert (status.state, status.n_fills, len(status.clients)) == ("failed", 2, 1)
    assert status.error is not None
    assert str(nowhere) in status.error
    assert status.rss_bytes > 2**20


def test_host_without_a_model_never_imports_torch(hosts: Hosts, nowhere: Path) -> None:
    hosts.start(nowhere)
    client = hosts.client()
    client.wait_for_state("failed")
    # An interpreter with torch maps its libraries; 60 MB is twice what this host needs without.
    assert client.status().rss_bytes < 60 * 2**20


@pytest.mark.parametrize(
    "noise",
    [
        struct.pack(">I", 2**31),
        struct.pack(">I", 5) + b"hello",
        struct.pack(">I", 4) + b"\xa3\xff\xff\xff",
        struct.pack(">I", 100_000) + b"\x91" * 100_000,
        pack(Filled(id=1)),
        pack(fill(7)) + pack(fill(7)),
    ],
    ids=["too long", "no message", "no UTF-8", "nested too deep", "a reply", "an id in use"],
)
def test_malformed_frame_closes_that_connection_only(hosts: Hosts, nowhere: Path, noise: bytes) -> None:
    hosts.start(nowhere)
    good, bad = hosts.client(), hosts.client()
    good.wait_for_state("failed")
    bad.socket.sendall(noise)
    wait_until(lambda: len(good.status().clients) == 1)
    assert isinstance(good.ask(fill()), Failed)


def test_client_that_leaves_inside_a_frame_is_forgotten(hosts: Hosts, nowhere: Path) -> None:
    hosts.start(nowhere)
    good, bad = hosts.client(), hosts.client()
    bad.socket.sendall(pack(fill())[:10])
    bad.close()
    wait_until(lambda: len(good.status().clients) == 1)


def test_client_that_never_reads_is_dropped_and_blocks_nobody(hosts: Hosts, nowhere: Path) -> None:
    hosts.start(nowhere)
    good, bad = hosts.client(), hosts.client()
    good.wait_for_state("failed")
    requests = b"".join(pack(StatusRequest(id=id)) for id in range(5000))
    with contextlib.suppress(ConnectionError):
        for _ in range(60):
            bad.socket.sendall(requests)
    wait_until(lambda: len(good.status().clients) == 1)
    assert isinstance(good.ask(fill()), Failed)


def test_shutdown_ends_the_host_and_removes_the_socket(hosts: Hosts, nowhere: Path) -> None:
    host = hosts.start(nowhere)
    client, other = hosts.client(), hosts.client()
    client.send(Shutdown())
    assert host.wait(PATIENCE_S) == 0
    assert not hosts.socket.exists()
    assert client.receive() is None
    assert other.receive() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_host_in_order(hosts: Hosts, nowhere: Path, number: signal.Signals) -> None:
    host = hosts.start(nowhere)
    hosts.client()
    host.send_signal(number)
    assert host.wait(PATIENCE_S) == 0
    assert "Traceback" not in hosts.log.read_text()
    assert not hosts.socket.exists()


def test_idle_host_leaves_although_its_status_is_polled(hosts: Hosts, nowhere: Path) -> None:
    host = hosts.start(nowhere, idle_minutes=0.02)
    client = hosts.client()
    with contextlib.suppress(BrokenPipeError):
        while client.ask(StatusRequest(id=1)) is not None:
            time.sleep(0.02)
    assert host.wait(PATIENCE_S) == 0
    assert not hosts.socket.exists()


def test_host_whose_socket_was_removed_makes_room_for_another(hosts: Hosts, nowhere: Path) -> None:
    first = hosts.start(nowhere)
    hosts.client()
    hosts.socket.unlink()
    assert first.wait(PATIENCE_S) == 0
    second = hosts.start(nowhere)
    assert hosts.client().status().pid == second.pid


def test_source_text_never_reaches_the_log(hosts: Hosts, nowhere: Path) -> None:
    host = hosts.start(nowhere)
    client = hosts.client()
    client.ask(fill(parts=("password_of_mine = ", "\n")))
    client.send(Shutdown())
    assert host.wait(PATIENCE_S) == 0
    assert "password_of_mine" not in hosts.log.read_text()


def test_the_idle_time_of_a_running_host_can_be_set(hosts: Hosts, nowhere: Path) -> None:
    host = hosts.start(nowhere)
    client = hosts.client()
    for minutes in (0.0, float("nan")):
        client.send(Idle(minutes=minutes))
        refusal = client.receive()
        assert isinstance(refusal, Failed)
        assert "give more than 0" in refusal.message
    client.send(Idle(minutes=0.01))
    assert client.status().idle_s == pytest.approx(0.6)
    assert host.wait(PATIENCE_S) == 0


def test_a_host_that_ended_in_order_leaves_neither_socket_nor_lock(hosts: Hosts, nowhere: Path) -> None:
    for _ in range(2):
        host = hosts.start(nowhere)
        hosts.client().send(Shutdown())
        assert host.wait(PATIENCE_S) == 0
        assert list(hosts.socket.parent.iterdir()) == []


def test_status_tells_who_is_served(hosts: Hosts, nowhere: Path) -> None:
    hosts.start(nowhere)
    first, second = hosts.client(), hosts.client()
    first.ask(StatusRequest(id=1, client="an editor"))
    first.ask(fill())
    status = second.status()
    assert [client.name for client in status.clients] == ["an editor", ""]
    assert [client.n_fills for client in status.clients] == [1, 0]
    if sys.platform == "linux":
        assert {client.pid for client in status.clients} == {os.getpid()}
    assert status.counts == {"failed": 1}
    assert status.uptime_s > 0


def test_the_end_of_a_killed_host_is_told_by_the_next(hosts: Hosts, nowhere: Path) -> None:
    first = hosts.start(nowhere)
    assert hosts.client().status().last_failure is None
    first.kill()
    first.wait(PATIENCE_S)
    hosts.start(nowhere)
    assert "killed or crashed" in str(hosts.client().status().last_failure)


IMPATIENT = "from midspan_engine import host; host.FAILED_IDLE_S = 0.3; host.command()"


def test_a_host_without_a_model_does_not_stay_until_its_idle_time(hosts: Hosts, nowhere: Path) -> None:
    host = hosts.start(nowhere, program=("-c", IMPATIENT))
    client = hosts.client()
    assert isinstance(client.ask(fill()), Failed)
    assert host.wait(PATIENCE_S) == 0


def engine_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-X", "importtime", "-m", "midspan_engine", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def test_help_of_the_engine_lists_commands_without_importing_them() -> None:
    done = engine_command("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("bench", "eval", "host", "train", "verify"))
    assert "torch" not in done.stderr


def test_unknown_command_or_option_is_unusable_input() -> None:
    never = ("host", "--socket", "s", "--checkpoint", "c", "--idle-minutes", "nan")
    for arguments in (("hosts",), ("host", "--idle-minutes", "0"), ("host",), never):
        done = engine_command(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
