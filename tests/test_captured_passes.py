"""A decoder pass of fixed shape gives what a pass made for its canvas alone gives, whatever the pool went through."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from torch.overrides import TorchFunctionMode

from midspan_engine.budget import budget
from midspan_engine.graphs import capture, shapes
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import CHUNK_TOKENS, LEAST_ROWS, ROOM_TOKENS, SLACK_TOKENS, KVPool, row_bytes
from midspan_engine.models.captured_passes import CapturedPasses
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from midspan_engine.models.recording import Recording
from midspan_engine.prefix_cache import PrefixCache
from test_decode import drawn
from tiny_engine import BLANKS, PROBED, REFERENCE, fill, tiny_engine, tiny_model

N_TOKENS = 1200
"""Of a row: a ring of the tiny model comes round after 64 + SLACK_TOKENS."""


def captured_model(n_rows: int = 3) -> DiffusionGemma:
    model = tiny_model.__wrapped__()
    pool = KVPool(model.config, n_rows, N_TOKENS, torch.float32, torch.device("cpu"))
    decoder = shapes(model.config, BLANKS)
    model.capture(CapturedPasses(model.config, pool, torch.float32, decoder=decoder, encoder=(4, 20)))
    return model


def pool_of(model: DiffusionGemma) -> KVPool:
    assert model.captured is not None
    return model.captured.pool


def taken(model: DiffusionGemma) -> KVCache:
    cache = pool_of(model).take()
    assert cache is not None
    return cache


def assert_same_as_uncaptured(model: DiffusionGemma, texts: list[torch.Tensor], caches: list[KVCache]) -> None:
    """Compares passes of one row and of all, on canvases that fill a bucket or not, with those of caches that grow."""
    plain, own = tiny_model(), [KVCache(model.config.n_layers) for _ in texts]
    for text, cache in zip(texts, own, strict=True):
        plain.encode(text, cache)
    for n_slots in (32, 21):
        canvas, wanted = drawn(len(texts), n_slots, seed=1), torch.tensor([1, 7, 20])
        soft = plain.embed(drawn(len(texts), n_slots, seed=2))
        for given in ((None, None), (soft, wanted)):
            found, expected = model.decode(canvas, caches, *given), plain.decode(canvas, own, *given)
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        found, expected = model.decode(canvas, caches[0], soft), plain.decode(canvas, own[0], soft)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_document_that_grows_and_shrinks_around_its_ring_is_decoded_as_one_that_is_kept_whole() -> None:
    model, text = captured_model(), drawn(1, 900, seed=3)
    cache = taken(model)
    for n_before, n_now in (
        (0, 1),
        (1, 64),
        (64, 500),
        (500, 565),
        (565, 575),
        (575, 578),
        (578, 700),
        (690, 900),
        (890, 891),
    ):
        cache.truncate(n_before)
        model.encode(text[:, n_before:n_now], cache)
        assert_same_as_uncaptured(model, [text[:, :n_now]], [cache])


@torch.inference_mode()
def test_documents_side_by_side_see_their_own_rows_of_the_pool_only() -> None:
    model = captured_model()
    texts = [drawn(1, n_tokens, seed=n_tokens) for n_tokens in (5, 600, 64)]
    caches = [taken(model) for _ in texts]
    for text, cache in zip(texts, caches, strict=True):
        for chunk in text.split(CHUNK_TOKENS, dim=1):
            model.encode(chunk, cache)
    assert_same_as_uncaptured(model, texts, caches)
    assert_same_as_uncaptured(model, texts[::-1], caches[::-1])
    assert_same_as_uncaptured(model, texts[:1], caches[:1])


@torch.inference_mode()
def test_a_pass_is_replayed_only_where_one_fits_and_every_cache_lies_in_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = captured_model()
    assert model.captured is not None
    assert list(model.captured.decoder) == [(1, 32), (2, 32), (4, 32)], "the tiny canvas has 32 slots"
    cache, outside = taken(model), KVCache(model.config.n_layers)
    for each in (cache, outside):
        model.encode(drawn(1, 9, seed=1), each)
    played: list[int] = []
    monkeypatch.setattr(Recording, "play", lambda _, run: played.append(1) or run())
    model.decode(drawn(5, 32, seed=2), cache)
    model.decode(drawn(1, 33, seed=2), cache)
    model.decode(drawn(2, 32, seed=2), [cache, outside])
    model.encode(drawn(1, 21, seed=2), cache)
    model.encode(drawn(1, 2, seed=2), outside)
    assert not played
    model.decode(drawn(2, 32, seed=2), [cache, cache])
    model.encode(drawn(1, 2, seed=2), cache)
    assert len(played) == 2


class NothingOfTheHost(TorchFunctionMode):
    """Fails where numbers of the host come into what is computed elsewhere: a copy that no graph can hold."""

    def __torch_function__(
        self, function: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        assert function not in (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy), function
        assert all(each.is_meta for each in args if isinstance(each, torch.Tensor)), function
        return function(*args, **(kwargs or {}))


def test_nothing_in_a_captured_pass_waits_for_a_number_or_depends_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On tensors without memory a number that is asked for raises; the kernels stand in as on a GPU."""
    pytest.importorskip("triton")
    from ahead_of_time import launches

    monkeypatch.setenv("MIDSPAN_KERNELS", "triton")
    meta = torch.device("meta")
    with meta, torch.inference_mode():
        model = DiffusionGemma(tiny_model().config)
        assert model.has_fixed_shapes
        pool = KVPool(model.config, 2, N_TOKENS, torch.float32, meta)
        captured = CapturedPasses(model.config, pool, torch.float32, decoder=[(2, 32)], encoder=[8])
        model.capture(captured)
        with NothingOfTheHost():
            of_decoder = launches(lambda: captured.decoder[2, 32].run(model.denoised))
            of_encoder = launches(lambda: captured.encoder[8].run(model.encoded))
    names = {launch.kernel.fn.__name__ for launch in of_encoder}
    assert {"_gate_up_kernel", "_sorting_kernel", "_routing_kernel", "_norm_kernel", "_rotary_kernel"} <= names
    assert {"_piece_kernel", *names} <= {launch.kernel.fn.__name__ for launch in of_decoder}


def test_whoever_asks_passes_can_be_captured_where_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not tiny_model().has_fixed_shapes
    monkeypatch.setenv("MIDSPAN_KERNELS", "triton")
    assert torch.is_grad_enabled()
    assert tiny_model().has_fixed_shapes


@torch.inference_mode()
def test_going_back_within_the_slack_encodes_nothing_and_further_back_starts_over() -> None:
    model = captured_model()
    prefixes, ids = PrefixCache(model), drawn(1, 480, seed=4)[0].tolist()
    ids = ids + ids[:200]
    prefixes.encode("a.py", ids)
    assert prefixes.encode("a.py", ids[:600])[1] == 0
    assert prefixes.encode("a.py", ids)[1] == 80
    n_held = len(ids) - SLACK_TOKENS
    assert prefixes.encode("a.py", ids[:n_held])[1] == 0
    cache, n_encoded = prefixes.encode("a.py", ids[: n_held - 10])
    assert n_encoded == n_held - 10, "the ring has lost what the window before it held"
    assert_same_as_uncaptured(model, [torch.tensor([ids[: n_held - 10]])], [cache])


@torch.inference_mode()
def test_a_row_goes_to_the_next_document_once_nobody_holds_it() -> None:
    model = captured_model(n_rows=3)
    prefixes, pool, ids = PrefixCache(model), pool_of(model), list(range(6, 26))
    held = [prefixes.encode(name, ids)[0] for name in ("a.py", "b.py")]
    assert (pool.n_free, prefixes.n_bytes) == (1, 2 * row_bytes(model.config, N_TOKENS, torch.float32))
    held.append(prefixes.encode("c.py", ids)[0])  # a.py has to go, but somebody still reads it
    assert (len(prefixes), pool.n_free) == (2, 0)
    late, _ = prefixes.encode("d.py", ids)
    assert late.row is None, "it is served from a cache of its own"
    torch.testing.assert_close(*(model.decode(drawn(1, 32, seed=1), cache) for cache in (late, held[0])))
    held.clear()
    prefixes.forget("c.py")
    assert prefixes.encode("e.py", ids)[0].row is not None


@torch.inference_mode()
def test_a_prompt_that_is_too_long_for_the_pool_leaves_it() -> None:
    model = captured_model()
    prefixes, ids = PrefixCache(model), drawn(1, N_TOKENS, seed=5)[0].tolist()
    n_fits = N_TOKENS - SLACK_TOKENS
    assert prefixes.encode("a.py", ids[:n_fits])[0].row is not None
    cache, n_encoded = prefixes.encode("a.py", ids[: n_fits + 1])
    assert (cache.row, n_encoded, pool_of(model).n_free) == (None, n_fits + 1, 3)


def test_an_engine_answers_the_same_from_captured_passes() -> None:
    infill = msgspec.structs.replace(PROBED, prompt_tokens=400)
    for asked, wishes in ((infill, {"n_candidates": 2}), (BLANKS, {"single_line": True})):
        plain, captured = tiny_engine(asked), tiny_engine(asked, model=captured_model())
        for text in ("def f(x):\n    return x + ", "x = "):
            expected, found = (fill(engine, text, "\nprint(f(1))\n", **wishes) for engine in (plain, captured))
            assert [each.gaps for each in found.candidates] == [each.gaps for each in expected.candidates]
            assert found.stats.steps == expected.stats.steps


def test_a_gpu_has_room_for_the_least_pool_and_for_what_passes_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10**9, 10**9))
    config = tiny_model().config
    on_gpu, on_cpu = (budget(config, PROBED, torch.bfloat16, torch.device(where), 0) for where in ("cuda", "cpu"))
    assert on_gpu.kv == LEAST_ROWS * row_bytes(config, PROBED.prompt_tokens + ROOM_TOKENS, torch.bfloat16) > on_cpu.kv
    assert on_gpu.overhead > on_cpu.overhead == 0


def test_a_model_on_a_cpu_is_served_as_it_is() -> None:
    model = tiny_model.__wrapped__()
    capture(model, BLANKS)
    assert model.captured is None


def test_one_canvas_costs_a_pass_a_step_and_none_that_commits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference encodes every canvas that is done. Nobody reads on behind a fill, so here nothing is encoded."""
    model = captured_model()
    passes: list[str] = []
    real = Recording.play
    monkeypatch.setattr(Recording, "play", lambda self, run: passes.append(kinds[self]) or real(self, run))
    assert model.captured is not None
    kinds = {one.recording: "decoder" for one in model.captured.decoder.values()}
    kinds |= {one.recording: "encoder" for one in model.captured.encoder.values()}
    engine = tiny_engine(REFERENCE, model=model)
    stats = fill(engine, "def f(x):\n    return x + ", "\nprint(f(1))\n").stats
    assert passes.count("decoder") == stats.steps > 1
    assert "encoder" in passes
    assert "encoder" not in passes[passes.index("decoder") :]


@torch.inference_mode()
def test_an_encoder_pass_of_fixed_shape_gives_the_states_of_its_real_tokens_and_touches_nothing_before_them() -> None:
    model, plain, text = captured_model(), tiny_model(), drawn(1, 600, seed=6)
    cache, own = taken(model), KVCache(model.config.n_layers)
    for n_before, n_now in ((0, 3), (3, 400), (400, 560), (560, 580), (580, 581), (581, 599)):
        kept = [numbers.clone() for numbers in cache.window(2, n_before, None) or ()]
        found, expected = (m.encode(text[:, n_before:n_now], c) for m, c in ((model, cache), (plain, own)))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        assert all(map(torch.equal, kept, cache.window(2, n_before, None) or ()))
    assert cache.length == own.length


def test_the_released_model_is_captured_in_thirteen_decoder_passes() -> None:
    config = msgspec.structs.replace(tiny_model().config, canvas_length=256)
    found = shapes(config, PROBED)
    assert {n_slots for n_rows, n_slots in found if n_rows == 4} == {32, 64, 128, 256}
    assert (17, 64) in found
    assert len(found) == 13
