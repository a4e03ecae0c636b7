"""What the encoder computed for a document is used again as far as its tokens are the same."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from midspan_engine.errors import Cancelled
from midspan_engine.kv import KVCache
from midspan_engine.kv_pool import CHUNK_TOKENS
from midspan_engine.prefix_cache import PrefixCache, common_prefix
from midspan_engine.prompt import build_prompt
from tiny_engine import BLANKS, embedded_tokens, tiny_model

N_LAYERS = 3


def contents(cache: KVCache) -> list[torch.Tensor]:
    held = [cache.window(layer, cache.length, None) for layer in range(N_LAYERS)]
    return [tensor for pair in held if pair is not None for tensor in pair]


def assert_same_as_fresh(cache: KVCache, ids: list[int]) -> None:
    fresh = KVCache(N_LAYERS)
    if ids:
        with torch.inference_mode():
            tiny_model().encode(torch.tensor([ids]), fresh)
    assert cache.length == len(ids)
    for held, expected in zip(contents(cache), contents(fresh), strict=True):
        torch.testing.assert_close(held, expected, atol=1e-5, rtol=1e-5)


@settings(max_examples=40)
@given(prompts=st.lists(st.lists(st.integers(6, 9), max_size=80), min_size=1, max_size=6))
def test_the_cache_equals_a_fresh_pass_whatever_came_before(prompts: list[list[int]]) -> None:
    prefixes = PrefixCache(tiny_model())
    previous: list[int] = []
    for ids in prompts:
        cache, n_encoded = prefixes.encode("a.py", ids)
        assert n_encoded == len(ids) - common_prefix(previous, ids)
        assert_same_as_fresh(cache, ids)
        previous = ids


def test_a_prompt_longer_than_a_chunk_equals_one_pass() -> None:
    ids = [6 + number % 90 for number in range(CHUNK_TOKENS + 100)]
    cache, n_encoded = PrefixCache(tiny_model()).encode("a.py", ids)
    assert n_encoded == len(ids)
    assert_same_as_fresh(cache, ids)


def test_a_cancel_takes_effect_between_two_chunks_and_keeps_what_was_encoded() -> None:
    ids = [6 + number % 90 for number in range(CHUNK_TOKENS + 100)]
    prefixes = PrefixCache(tiny_model())
    answers = iter([False, True])
    with pytest.raises(Cancelled):
        prefixes.encode("a.py", ids, lambda: next(answers))
    cache, n_encoded = prefixes.encode("a.py", ids)
    assert n_encoded == 100
    assert_same_as_fresh(cache, ids)


def test_typing_a_line_encodes_a_handful_of_tokens_a_key_but_for_one_stride() -> None:
    tokens, prefixes = embedded_tokens(), PrefixCache(tiny_model())
    text = "".join(f"value_{number} = call({number})\n" for number in range(60))
    typed = "".join(f"    result_{number} = self.compute(value_{number}, 'text')\n" for number in range(12))
    costs = []
    for end in range(len(typed)):
        prompt = build_prompt((text + typed[:end], "\n"), tokens, BLANKS, n_gap=12, n_slots=32)
        costs.append(prefixes.encode("a.py", prompt.context)[1])
    jumps = [cost for cost in costs[1:] if cost > 4]
    n_typed = len(tokens.encode(typed))
    assert 1 <= len(jumps) <= 1 + n_typed // 128, "the window moves once a stride"
    assert all(cost < BLANKS.prompt_tokens for cost in jumps)
    assert sum(costs[1:]) - sum(jumps) <= 1.2 * n_typed, "every token is encoded about once"


def test_going_back_encodes_nothing_and_an_edit_only_what_follows_it() -> None:
    prefixes = PrefixCache(tiny_model())
    ids = list(range(6, 66))
    prefixes.encode("a.py", ids)
    assert prefixes.encode("a.py", ids[:40])[1] == 0
    cache, n_encoded = prefixes.encode("a.py", [*ids[:30], 500, *ids[31:40]])
    assert n_encoded == 10
    assert_same_as_fresh(cache, [*ids[:30], 500, *ids[31:40]])


def bytes_of_one(ids: list[int]) -> int:
    prefixes = PrefixCache(tiny_model())
    prefixes.encode("a.py", ids)
    return prefixes.n_bytes


def test_documents_do_not_disturb_each_other_and_the_oldest_goes_first() -> None:
    ids = list(range(6, 26))
    n_documents = 4
    prefixes = PrefixCache(tiny_model(), n_documents * bytes_of_one([*ids, 100]))
    for number in range(n_documents):
        prefixes.encode(f"{number}.py", [*ids, 100 + number])
    assert prefixes.encode("0.py", [*ids, 100])[1] == 0, "used again, so 1.py is now the oldest"
    prefixes.encode("new.py", ids)
    assert len(prefixes) == n_documents
    assert prefixes.encode("0.py", [*ids, 100])[1] == 0
    assert prefixes.encode("1.py", [*ids, 101])[1] == len(ids) + 1


def test_the_cache_stays_within_its_bytes_and_counts_what_it_drops() -> None:
    ids = list(range(6, 26))
    budget = 3 * bytes_of_one(ids)
    prefixes = PrefixCache(tiny_model(), budget)
    for number in range(20):
        prefixes.encode(f"{number}.py", ids)
        assert prefixes.n_bytes <= budget
    prefixes.forget("19.py")
    assert prefixes.n_bytes == budget * 2 // 3
    prefixes.clear()
    assert (prefixes.n_bytes, len(prefixes)) == (0, 0)


def test_a_document_larger_than_the_budget_is_kept_alone() -> None:
    prefixes = PrefixCache(tiny_model(), 1)
    for document in ("a.py", "b.py"):
        cache, _ = prefixes.encode(document, [6, 7, 8])
        assert_same_as_fresh(cache, [6, 7, 8])
    assert len(prefixes) == 1
    assert prefixes.encode("b.py", [6, 7, 8])[1] == 0


def test_an_editor_that_opens_many_files_does_not_take_the_cache_of_another() -> None:
    ids = list(range(6, 26))
    prefixes = PrefixCache(tiny_model(), 4 * bytes_of_one(ids))
    prefixes.encode("1 a.py", ids)
    for number in range(20):
        prefixes.encode(f"2 {number}.py", ids)
    assert prefixes.encode("1 a.py", ids)[1] == 0


def test_a_forgotten_document_is_encoded_again() -> None:
    prefixes = PrefixCache(tiny_model())
    prefixes.encode("a.py", [6, 7, 8])
    prefixes.forget("a.py")
    prefixes.forget("never seen.py")
    assert len(prefixes) == 0
    assert prefixes.encode("a.py", [6, 7, 8])[1] == 3
