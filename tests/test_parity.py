"""Logits equal those of transformers on small random checkpoints; see oracle.py for their shapes."""

from __future__ import annotations

import pytest
import torch

from midspan_engine.kv import KVCache
from midspan_engine.models.diffusion_gemma import DiffusionGemma
from oracle import SHAPES, Pair, Shape, bf16_pair, build_pair, reference_cache, reference_head

TOLERANCE = 2e-4
"""Absolute, on fp32 logits capped at 30; measured: at most 1.3e-4, prefill in chunks of one token."""

BF16_TOLERANCE = 1e-3
"""Absolute, on logits under teacher forcing. Measured: 0, the roundings are the same operation for operation. There is
no middle ground: one rounding elsewhere sends a token to another expert and moves logits by whole units."""

Seeded = torch.Generator


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name: str = request.param
    return build_pair(tmp_path_factory.mktemp("checkpoint"), SHAPES[name])


@pytest.fixture(autouse=True)
def without_gradients() -> object:
    with torch.no_grad():
        yield


def tokens(shape: Shape, n_tokens: int, seed: int) -> torch.Tensor:
    """Returns random text ids [1, n]; the last three of the vocabulary stand for images."""
    return torch.randint(shape.vocab - 3, (1, n_tokens), generator=Seeded().manual_seed(seed))


def prompt_lengths(shape: Shape) -> dict[str, int]:
    return {
        "one token": 1,
        "shorter": max(1, shape.window - 2),
        "what a canvas sees": shape.window - 1,
        "the window": shape.window,
        "one more": shape.window + 1,
        "much longer": 2 * shape.window + 5,
    }


def apart(own: torch.Tensor, reference: torch.Tensor) -> float:
    assert own.shape == reference.shape
    return float((own.float() - reference.float()).abs().max())


def encoded(model: DiffusionGemma, *chunks: torch.Tensor) -> KVCache:
    cache = KVCache(model.config.n_layers)
    for chunk in chunks:
        model.encode(chunk, cache)
    return cache


def each_prompt(shape: Shape) -> list[tuple[str, torch.Tensor]]:
    return [(name, tokens(shape, n, seed=n)) for name, n in prompt_lengths(shape).items()]


def test_encoder_and_its_language_model_head_equal_the_reference(pair: Pair) -> None:
    for name, prompt in each_prompt(pair.shape):
        hidden = pair.own.encode(prompt, KVCache(pair.own.config.n_layers))
        theirs = pair.reference.model.encoder(input_ids=prompt, cache=reference_cache(pair.reference)).last_hidden_state
        assert apart(hidden, theirs) < TOLERANCE, name
        assert apart(pair.own.logits(hidden), reference_head(pair.reference, theirs)) < TOLERANCE, name


def test_decoder_equals_the_reference_with_and_without_self_conditioning(pair: Pair) -> None:
    canvas = tokens(pair.shape, pair.shape.canvas, seed=100)
    for name, prompt in each_prompt(pair.shape):
        cache = encoded(pair.own, prompt)
        first = pair.reference(input_ids=prompt, decoder_input_ids=canvas).logits
        assert apart(pair.own.logits(pair.own.decode(canvas, cache)), first) < TOLERANCE, name
        fed_back = first / 0.7
        second = pair.reference(input_ids=prompt, decoder_input_ids=canvas, self_conditioning_logits=fed_back).logits
        own = pair.own.logits(pair.own.decode(canvas, cache, pair.own.soften(fed_back)))
        assert apart(own, second) < TOLERANCE, name
        assert apart(first, second) > 100 * TOLERANCE, "self-conditioning must matter for this to prove anything"


def test_second_canvas_sees_the_committed_first_one_as_the_reference_does(pair: Pair) -> None:
    for name, prompt in each_prompt(pair.shape):
        committed, canvas = (tokens(pair.shape, pair.shape.canvas, seed) for seed in (200, 201))
        theirs = reference_cache(pair.reference)
        pair.reference.model.encoder(input_ids=prompt, cache=theirs)
        pair.reference(decoder_input_ids=committed, cache=theirs)
        pair.reference.model.encoder(input_ids=committed, cache=theirs)
        own = encoded(pair.own, prompt)
        pair.own.decode(committed, own)
        pair.own.encode(committed, own)
        expected = pair.reference(decoder_input_ids=canvas, cache=theirs).logits
        assert apart(pair.own.logits(pair.own.decode(canvas, own)), expected) < TOLERANCE, name


@pytest.mark.parametrize("size", [1, 7])
def test_prefill_in_chunks_equals_prefill_at_once(pair: Pair, size: int) -> None:
    prompt = tokens(pair.shape, 2 * pair.shape.window + 5, seed=300)
    canvas = tokens(pair.shape, pair.shape.canvas, seed=301)
    expected = pair.reference(input_ids=prompt, decoder_input_ids=canvas).logits
    chunked = encoded(pair.own, *prompt.split(size, dim=1))
    assert chunked.length == prompt.shape[1]
    assert apart(pair.own.logits(pair.own.decode(canvas, chunked)), expected) < TOLERANCE


def test_a_cache_that_was_cut_back_and_encoded_anew_is_as_good_as_a_fresh_one(pair: Pair) -> None:
    prompt, other = (tokens(pair.shape, 2 * pair.shape.window + 5, seed) for seed in (400, 401))
    canvas = tokens(pair.shape, pair.shape.canvas, seed=402)
    kept = pair.shape.window + 2
    cache = encoded(pair.own, torch.cat([prompt[:, :kept], other], dim=1))
    cache.truncate(kept)
    pair.own.encode(prompt[:, kept:], cache)
    expected = pair.reference(input_ids=prompt, decoder_input_ids=canvas).logits
    assert apart(pair.own.logits(pair.own.decode(canvas, cache)), expected) < TOLERANCE


def test_rows_of_a_canvas_batch_do_not_see_each_other(pair: Pair) -> None:
    cache = encoded(pair.own, tokens(pair.shape, pair.shape.window + 3, seed=500))
    rows = torch.cat([tokens(pair.shape, pair.shape.canvas, seed) for seed in (501, 502, 503)])
    soft = pair.own.soften(pair.own.logits(pair.own.decode(rows, cache)))
    together = pair.own.logits(pair.own.decode(rows, cache, soft))
    for row in range(len(rows)):
        alone = pair.own.logits(pair.own.decode(rows[row, None], cache, soft[row, None]))
        assert apart(together[row, None], alone) < TOLERANCE


def test_training_passes_equal_those_of_inference_within_the_window(pair: Pair) -> None:
    n_context = max(1, pair.shape.window - 1)
    row = tokens(pair.shape, pair.shape.window, seed=600)
    canvas = tokens(pair.shape, pair.shape.canvas, seed=601)
    hidden, context = pair.own.encode_rows(row)
    cache = KVCache(pair.own.config.n_layers)
    assert apart(hidden, pair.own.encode(row, cache)) < TOLERANCE
    cache.truncate(n_context)
    trained = pair.own.decode_rows(canvas, context, torch.tensor([n_context]), None)
    assert apart(pair.own.logits(trained), pair.own.logits(pair.own.decode(canvas, cache))) < TOLERANCE
    # in training a sliding layer sees all of a row, so nothing but the context may lie outside the window here
    behind = tokens(pair.shape, 1, seed=602)
    went_on = pair.own.continue_rows(behind, context, torch.tensor([n_context]))
    assert apart(went_on, pair.own.encode(behind, cache)) < TOLERANCE


def test_bf16_logits_equal_the_reference_under_teacher_forcing(pair: Pair) -> None:
    halves = bf16_pair(pair)
    canvas = tokens(pair.shape, pair.shape.canvas, seed=700)
    for name, prompt in each_prompt(pair.shape)[1::2]:
        cache = encoded(halves.own, prompt)
        first = halves.reference(input_ids=prompt, decoder_input_ids=canvas).logits
        assert apart(halves.own.logits(halves.own.decode(canvas, cache)), first) < BF16_TOLERANCE, name
        fed_back = (first / 0.7).bfloat16()
        second = halves.reference(input_ids=prompt, decoder_input_ids=canvas, self_conditioning_logits=fed_back).logits
        own = halves.own.logits(halves.own.decode(canvas, cache, halves.own.soften(fed_back)))
        assert apart(own, second) < BF16_TOLERANCE, name


def test_encoder_and_decoder_scale_their_layers_apart(pair: Pair) -> None:
    decoder = [float(layer.layer_scalar) for layer in pair.own.layers]
    assert not set(decoder) & {float(scalar) for scalar in pair.own.encoder_layer_scalars}
