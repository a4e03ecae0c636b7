"""`midspan verify`: compares a checkpoint's logits and a seeded denoising trace with transformers, in fp32 on the CPU.

One model is in memory at a time: the reference answers first and is let go, then ours answers the same questions.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import torch
from rich.console import Console
from rich.table import Table

from midspan_engine.config import GenerationConfig, ModelConfig, load_generation_config, load_model_config
from midspan_engine.errors import CheckpointError, InputError
from midspan_engine.generate import generate
from midspan_engine.kv import KVCache
from midspan_engine.weights import load_weights

TOLERANCE = 2e-4
"""Largest difference that fp32 arithmetic in another order explains; 1e-5 to 1e-4 is measured on small checkpoints."""

_N_CANVASES = 2
"""Canvases of the trace: the second one reads what the first one's commit pass encoded."""

_TEMPERATURE = 0.7
"""By which the logits fed back as self-conditioning are divided; a value from the middle of the sampler's range."""


class Answers(msgspec.Struct, frozen=True):
    """What one implementation says to the questions of a seed."""

    outputs: dict[str, torch.Tensor]
    drafts: list[torch.Tensor]
    """The draft [1, C] after every denoising step of the trace."""


class Verdict(msgspec.Struct, frozen=True):
    """How far two implementations are apart."""

    differences: dict[str, float]
    """Largest absolute difference by name of the output."""
    first_step_apart: int | None
    """The first step whose drafts differ, from 1; None for identical traces."""
    n_steps: int

    @property
    def max_abs_diff(self) -> float:
        """The largest absolute difference of all outputs."""
        return max(self.differences.values())

    @property
    def is_good(self) -> bool:
        """Whether the outputs agree within the tolerance and the traces in every token."""
        return self.max_abs_diff <= TOLERANCE and self.first_step_apart is None


class Questions(msgspec.Struct, frozen=True):
    """The inputs that both implementations get."""

    prompt: torch.Tensor
    """[1, L]."""
    canvas: torch.Tensor
    """[1, C]."""
    fed_back: torch.Tensor
    """[1, C, V]. Temperature-divided logits for self-conditioning. Random, not one's own: else errors would add up."""
    generation: GenerationConfig
    n_new_tokens: int
    seed: int


@click.command(name="verify")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--prompt-tokens", type=click.IntRange(min=1), help="Length of the prompt.  [default: the window plus 5]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the prompt, the canvas and the trace.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(checkpoint: Path, prompt_tokens: int | None, seed: int, as_json: bool) -> None:
    """Compare a checkpoint's logits with transformers and print the largest difference.

    CHECKPOINT is a folder. The exit status is 1 if the difference is out of tolerance or a seeded denoising trace
    differs in a token.
    """
    verdict = verify(checkpoint, prompt_tokens, seed)
    if as_json:
        said = {"max_abs_diff": verdict.max_abs_diff, "trace_identical": verdict.first_step_apart is None}
        click.echo(msgspec.json.encode(said))
    else:
        _print(verdict, checkpoint)
    if not verdict.is_good:
        click.get_current_context().exit(1)


def verify(checkpoint: Path, n_prompt_tokens: int | None = None, seed: int = 0) -> Verdict:
    """Returns how far the engine's answers are from those of transformers.

    The prompt defaults to five tokens more than the sliding window, so that the window matters. Raises CheckpointError
    for an unusable folder and InputError without transformers or for a prompt that does not fit the model.
    """
    if importlib.util.find_spec("transformers") is None:
        raise InputError(
            "midspan verify compares with transformers, which is not installed: run `pip install transformers==5.24.0`"
        )
    config = load_model_config(checkpoint)
    questions = ask(config, load_generation_config(checkpoint), n_prompt_tokens, seed)
    # Ours is loaded first and let go: its clear errors come before the reference's warnings.
    own = _own_answers(checkpoint, config, questions)
    return compare(own, _reference_answers(checkpoint, questions))


def ask(config: ModelConfig, generation: GenerationConfig, n_prompt_tokens: int | None, seed: int) -> Questions:
    """Returns random inputs drawn from `seed`."""
    n_prompt = config.sliding_window + 5 if n_prompt_tokens is None else n_prompt_tokens
    n_new = _N_CANVASES * config.canvas_length
    if n_prompt + n_new > config.max_positions:
        raise InputError(
            f"a prompt of {n_prompt} tokens and {n_new} new ones do not fit the checkpoint's {config.max_positions} "
            f"positions: give --prompt-tokens of at most {config.max_positions - n_new}"
        )
    generator = torch.Generator().manual_seed(seed)
    canvas_1C = torch.randint(config.vocab_size, (1, config.canvas_length), generator=generator)
    return Questions(
        prompt=torch.randint(config.vocab_size, (1, n_prompt), generator=generator),
        canvas=canvas_1C,
        fed_back=torch.randn(*canvas_1C.shape, config.vocab_size, generator=generator) * 10 / _TEMPERATURE,
        generation=generation,
        n_new_tokens=n_new,
        seed=seed,
    )


def compare(own: Answers, reference: Answers) -> Verdict:
    """Returns the largest difference of each output and the first step at which the traces part."""
    differences = {name: float((own.outputs[name] - reference.outputs[name]).abs().max()) for name in own.outputs}
    n_steps = max(len(own.drafts), len(reference.drafts))
    pairs = zip(own.drafts, reference.drafts, strict=False)
    apart = next((step for step, (ours, theirs) in enumerate(pairs, start=1) if not torch.equal(ours, theirs)), None)
    if apart is None and len(own.drafts) != len(reference.drafts):
        apart = min(len(own.drafts), len(reference.drafts)) + 1
    return Verdict(differences=differences, first_step_apart=apart, n_steps=n_steps)


@torch.no_grad()
def _own_answers(checkpoint: Path, config: ModelConfig, questions: Questions) -> Answers:
    model = load_weights(checkpoint, config, torch.float32)
    cache = KVCache(config.n_layers)
    hidden_1LH = model.encode(questions.prompt, cache)
    soft_1CH = model.soften(questions.fed_back)
    outputs = {
        "encoder hidden states": hidden_1LH,
        "encoder logits": model.logits(hidden_1LH),
        "decoder logits": model.logits(model.decode(questions.canvas, cache)),
        "decoder logits, self-conditioned": model.logits(model.decode(questions.canvas, cache, soft_1CH)),
    }
    drafts: list[torch.Tensor] = []
    generator = torch.Generator().manual_seed(questions.seed)
    generate(
        model,
        questions.prompt,
        questions.generation,
        max_new_tokens=questions.n_new_tokens,
        generator=generator,
        on_step=drafts.append,
    )
    return Answers(outputs=outputs, drafts=drafts)


@torch.no_grad()
def _reference_answers(checkpoint: Path, questions: Questions) -> Answers:
    model = _load_reference(checkpoint)
    prompt_1L, canvas_1C = questions.prompt, questions.canvas
    plain = model(input_ids=prompt_1L, decoder_input_ids=canvas_1C)
    conditioned = model(input_ids=prompt_1L, decoder_input_ids=canvas_1C, self_conditioning_logits=questions.fed_back)
    hidden_1LH = plain.encoder_last_hidden_state
    cap = model.final_logit_softcapping
    outputs = {
        "encoder hidden states": hidden_1LH,
        "encoder logits": torch.tanh(model.lm_head(hidden_1LH) / cap) * cap,
        "decoder logits": plain.logits,
        "decoder logits, self-conditioned": conditioned.logits,
    }
    # The reference draws from torch's global generator; whoever called us gets theirs back untouched.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(questions.seed)
        drafts = _reference_drafts(model, questions)
    return Answers(outputs=outputs, drafts=drafts)


def _load_reference(checkpoint: Path) -> Any:
    from transformers import DiffusionGemmaForBlockDiffusion
    from transformers.utils import logging

    # It warns that the vision tower is new, which a text checkpoint lacks on purpose.
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        # Eager attention: the arithmetic as written, without a fused kernel's own rounding.
        model = DiffusionGemmaForBlockDiffusion.from_pretrained(
            checkpoint, dtype=torch.float32, attn_implementation="eager", local_files_only=True
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"transformers cannot load {checkpoint}: {error}") from error
    return model.eval()


class _DraftRecorder:
    """A streamer of transformers that keeps the drafts."""

    def __init__(self) -> None:
        self.drafts: list[torch.Tensor] = []

    def put(self, value: torch.Tensor) -> None:
        """Receives the prompt and finished canvases, which the last drafts hold already."""

    def put_draft(self, value: torch.Tensor) -> None:
        """Receives the draft of a denoising step."""
        self.drafts.append(value)

    def end(self) -> None:
        """Learns that generation is over."""


def _reference_drafts(model: Any, questions: Questions) -> list[torch.Tensor]:
    from transformers.models.diffusion_gemma.generation_diffusion_gemma import EntropyBoundSamplerConfig

    recorder, generation = _DraftRecorder(), questions.generation
    model.generate(
        questions.prompt,
        streamer=recorder,
        max_new_tokens=questions.n_new_tokens,
        max_denoising_steps=generation.max_denoising_steps,
        sampler_config=EntropyBoundSamplerConfig(entropy_bound=generation.entropy_bound),
        t_min=generation.t_min,
        t_max=generation.t_max,
        confidence_threshold=generation.confidence_threshold,
        stability_threshold=generation.stability_threshold,
        eos_token_id=list(generation.eos_token_ids),
        pad_token_id=generation.pad_token_id,
        cache_implementation=None,
    )
    return recorder.drafts


def _print(verdict: Verdict, checkpoint: Path) -> None:
    table = Table(title=f"{checkpoint}: Midspan against transformers, fp32")
    table.add_column("output")
    table.add_column("largest difference", justify="right")
    table.add_column("", justify="left")
    for name, difference in verdict.differences.items():
        table.add_row(name, f"{difference:.1e}", "ok" if difference <= TOLERANCE else f"over {TOLERANCE:.0e}")
    apart = verdict.first_step_apart
    trace = "identical" if apart is None else f"differs from step {apart} on"
    table.add_row(f"drafts of {verdict.n_steps} denoising steps", trace, "ok" if apart is None else "differs")
    Console(file=sys.stdout).print(table)
