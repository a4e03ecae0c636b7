"""The engine host with a model behind it: fills, drafts, cancels, and what happens when the model fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from host_process import PATIENCE_S, TROUBLED, Hosts, fill, wait_until
from midspan_engine.protocol import Cancel, Draft, Failed, Filled
from served_checkpoint import CHECKPOINT

pytestmark = pytest.mark.skipif(
    not (CHECKPOINT / "config.json").exists(), reason="the embedded checkpoint is not part of this tree"
)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    yield hosts
    hosts.end()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """One host of the embedded checkpoint for all tests that leave it as it was: importing torch takes seconds."""
    hosts = Hosts(tmp_path_factory.mktemp("model"))
    hosts.start(CHECKPOINT)
    yield hosts
    hosts.end()


def test_a_newer_fill_of_a_document_replaces_the_older_of_that_client_only(model: Hosts) -> None:
    client, other = model.client(), model.client()
    client.wait_for_state("ready")
    before = client.status().counts
    long = {"max_tokens": 64, "single_line": False, "n_candidates": 8}
    other.send(fill(1, **long))
    for id in (1, 2):
        client.send(fill(id, **long))
    client.send(fill(3))
    replies = {reply.id: reply for reply in (client.receive() for _ in range(3)) if isinstance(reply, Filled)}
    assert [replies[id].silence for id in (1, 2)] == ["superseded by a newer request for this document"] * 2
    assert "superseded" not in str(replies[3].silence)
    answer = other.receive()
    assert isinstance(answer, Filled)
    assert "superseded" not in str(answer.silence)
    assert client.status().counts["superseded"] == before.get("superseded", 0) + 2


def test_a_running_guess_of_one_client_gives_way_to_a_request_of_another(model: Hosts) -> None:
    client, other = model.client(), model.client()
    client.wait_for_state("ready")
    other.send(fill(1, priority="prefetch", max_tokens=64, single_line=False, n_candidates=8, watch=True))
    assert isinstance(other.receive(), Draft)
    assert isinstance(client.ask(fill(2)), Filled)
    reply = other.receive()
    while isinstance(reply, Draft):
        reply = other.receive()
    assert isinstance(reply, Filled)
    assert "gave way" in str(reply.silence)


def test_clients_that_type_at_once_share_passes_and_get_what_each_would_have_got_alone(model: Hosts) -> None:
    clients = [model.client() for _ in range(3)]
    clients[0].wait_for_state("ready")
    wishes = {"single_line": False, "max_tokens": 40}
    documents = [f"value_{n} = 1\n\ndef total_{n}(a, b):\n    return " for n in range(len(clients))]
    alone = [client.ask(fill(1, parts=(text, "\n"), **wishes)) for client, text in zip(clients, documents, strict=True)]
    before = clients[0].status().counts.get("passes shared", 0)
    busy = model.client()
    busy.send(fill(1, priority="several", n_candidates=8, watch=True, **wishes))
    assert isinstance(busy.receive(), Draft)
    for client, text in zip(clients, documents, strict=True):
        client.send(fill(2, parts=(text, "\n"), **wishes))
    for client, expected in zip(clients, alone, strict=True):
        reply = client.receive()
        assert isinstance(reply, Filled)
        assert isinstance(expected, Filled)
        assert [candidate.text for candidate in reply.candidates] == [each.text for each in expected.candidates]
    wait_until(lambda: clients[0].status().counts.get("passes shared", 0) > before)


def test_two_clients_keep_each_a_cache_of_the_same_document(model: Hosts) -> None:
    one, two = model.client(), model.client()
    text = "".join(f"value_{number} = call({number})\n" for number in range(30))
    costs = []
    for id in (1, 2, 3):
        for client, own in ((one, "# of one\n"), (two, "# of two\n")):
            answer = client.ask(fill(id, parts=(own + text, "\n")))
            assert isinstance(answer, Filled)
            costs.append(answer.stats.n_encoded)
    assert min(costs[:2]) > 50
    assert costs[2:] == [0, 0, 0, 0]


def test_nothing_is_kept_for_a_client_that_left(model: Hosts) -> None:
    gone, client = model.client(), model.client()
    n_before = client.status().n_documents
    assert isinstance(gone.ask(fill(1, document="left.py")), Filled)
    assert client.status().n_documents == n_before + 1
    gone.close()
    wait_until(lambda: client.status().n_documents == n_before)


@pytest.mark.slow
def test_a_fill_short_of_memory_is_tried_again_and_the_reason_of_a_second_failure_reaches_everybody(
    hosts: Hosts,
) -> None:
    host = hosts.start(CHECKPOINT, program=TROUBLED)
    client, other = hosts.client(), hosts.client()
    assert isinstance(client.ask(fill(1)), Filled)
    assert isinstance(client.ask(fill(2, document="hungry-once.py")), Filled)
    status = client.status()
    assert status.counts["retried"] == 1
    assert status.last_failure is None
    client.send(fill(3, document="hungry.py"))
    other.send(fill(4))
    for reply in (client.receive(), other.receive()):
        # The other fill may have been answered before.
        assert isinstance(reply, Filled) or (isinstance(reply, Failed) and reply.is_final)
        if isinstance(reply, Failed):
            assert "out of memory" in reply.message
            assert not reply.is_input
    assert host.wait(PATIENCE_S) == 0
    assert not hosts.socket.exists()


@pytest.mark.slow
def test_a_model_that_hangs_is_given_up_and_everybody_hears_why(hosts: Hosts) -> None:
    host = hosts.start(CHECKPOINT, program=TROUBLED)
    client, other = hosts.client(), hosts.client()
    client.wait_for_state("ready")
    client.send(fill(1, document="hangs.py"))
    client.wait_for_state("busy")
    other.send(fill(2))
    for reply in (client.receive(), other.receive()):
        assert isinstance(reply, Failed)
        assert reply.is_final
        assert "hung" in reply.message
    assert host.wait(PATIENCE_S) == 0
    assert list(hosts.socket.parent.iterdir()) == []


def test_status_is_answered_while_the_model_is_loading(hosts: Hosts) -> None:
    hosts.start(CHECKPOINT)
    client = hosts.client()
    assert client.status().state == "loading"
    client.wait_for_state("ready")
    status = client.status()
    assert status.n_parameters > 0
    assert "python" in status.languages
    assert not status.instructions
    assert status.checkpoint == str(CHECKPOINT)


def test_fill_is_answered_after_its_drafts(model: Hosts) -> None:
    client = model.client()
    client.wait_for_state("ready")
    n_documents = client.status().n_documents
    client.send(fill(5, watch=True))
    replies = [client.receive()]
    while isinstance(replies[-1], Draft):
        replies.append(client.receive())
    *drafts, answer = replies
    assert isinstance(answer, Filled)
    assert answer.id == 5
    assert len(drafts) == answer.stats.steps + answer.stats.encoder_steps > 0
    assert client.status().n_documents == n_documents + 1


def test_cancelled_fills_are_answered_at_once_running_or_queued(model: Hosts) -> None:
    client = model.client()
    for id in range(1, 21):
        client.send(fill(id, document=f"{id}.py"))
    for id in range(1, 21):
        client.send(Cancel(id=id))
    replies = [client.receive() for _ in range(20)]
    assert sorted(reply.id for reply in replies if isinstance(reply, Filled)) == list(range(1, 21))
    assert [reply.silence for reply in replies if isinstance(reply, Filled)].count("cancelled") >= 19
    answer = client.ask(fill(21))
    assert isinstance(answer, Filled)
    assert answer.id == 21
    assert answer.silence != "cancelled"


def test_fills_of_a_vanished_client_are_not_run(model: Hosts) -> None:
    gone, client = model.client(), model.client()
    client.wait_for_state("ready")
    n_others = len(client.status().clients) - 1
    for id in range(1, 51):
        gone.send(fill(id, document=f"{id}.py", max_tokens=64, single_line=False))
    gone.close()
    wait_until(lambda: len(client.status().clients) == n_others)
    client.wait_for_state("ready")
    assert isinstance(client.ask(fill()), Filled)


def test_unusable_fill_fails_alone(model: Hosts) -> None:
    client = model.client()
    reply = client.ask(fill(1, parts=("only one part",)))
    assert isinstance(reply, Failed)
    assert reply.is_input
    assert reply.message
    assert isinstance(client.ask(fill(2)), Filled)


def test_signal_during_a_fill_ends_the_host(hosts: Hosts) -> None:
    host = hosts.start(CHECKPOINT)
    client = hosts.client()
    client.send(fill(watch=True))
    assert isinstance(client.receive(), Draft)
    host.terminate()
    assert host.wait(PATIENCE_S) == 0
    assert not hosts.socket.exists()
    assert "Traceback" not in hosts.log.read_text()


def test_signal_while_torch_is_being_imported_ends_the_host(hosts: Hosts) -> None:
    host = hosts.start(CHECKPOINT)
    hosts.client()
    host.terminate()
    assert host.wait(PATIENCE_S) == 0
    assert not hosts.socket.exists()
