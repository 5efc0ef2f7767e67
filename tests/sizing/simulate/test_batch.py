"""The batch by itself: blocks against a count of every sequence, and the queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.simulate.batch import BLOCK, Batch, BatchedSequence, KvBlocks, Turn, blocks_of


def batch(blocks: int = 1000, max_tokens: int = 100) -> Batch[BatchedSequence]:
    return Batch(KvBlocks(blocks), max_tokens, lambda sequence, decoded: None)


def queue(made: Batch[BatchedSequence], *prompts: int) -> list[BatchedSequence]:
    sequences = [BatchedSequence(prompt) for prompt in prompts]
    made.waiting.extend(sequences)
    return sequences


@given(
    held=st.lists(st.integers(1, 100), max_size=20),
    step=st.integers(0, 50),
    tokens=st.integers(0, 70),
    free=st.integers(0, 60),
)
def test_the_need_of_many_steps_is_that_of_each_sequence_added_up(
    held: list[int], step: int, tokens: int, free: int
) -> None:
    blocks = KvBlocks(free)
    for number in held:
        blocks.join(number, step)

    def need(more: int) -> int:
        return sum(blocks_of(number + more) - blocks_of(number) for number in held)

    assert blocks.need(step, tokens, len(held)) == need(tokens)
    assert blocks.holds(step, tokens, len(held)) == (need(tokens) <= free)
    with_room = blocks.tokens_with_room(step, tokens, len(held))
    assert need(with_room) <= free
    assert with_room == tokens or need(with_room + 1) > free


def test_those_that_are_skipped_keep_their_place_before_those_that_wait() -> None:
    made = batch()
    first, second, third, fourth = queue(made, 10, 20, 30, 40)
    turns = {first: Turn.SKIPPED, second: Turn.ADMITTED, third: Turn.SKIPPED, fourth: Turn.WAITS}
    made.continue_prompts()
    assert made.admit(turns.__getitem__) == 2
    assert list(made.waiting) == [first, third, fourth]
    assert list(made.running) == [second]
    assert made.chunks == [(second, 20)]


def test_a_prompt_goes_on_in_the_next_step_before_others_begin() -> None:
    made = batch(max_tokens=50)
    first, second = queue(made, 80, 40)
    made.continue_prompts()
    made.admit(lambda sequence: Turn.ADMITTED)
    assert made.chunks == [(first, 50)]
    assert made.end_chunks() == []
    made.continue_prompts()
    made.admit(lambda sequence: Turn.ADMITTED)
    assert made.chunks == [(first, 30), (second, 20)]
    assert made.end_chunks() == [first]


def test_who_was_admitted_last_is_preempted_and_computes_its_answer_so_far_too() -> None:
    made = batch(blocks=5)
    first, second = queue(made, 2 * BLOCK, 2 * BLOCK)
    made.continue_prompts()

    def judge(sequence: BatchedSequence) -> Turn:
        return Turn.ADMITTED if made.take_blocks(sequence, sequence.tokens) else Turn.WAITS

    made.admit(judge)
    for sequence in made.end_chunks():
        made.start_decoding(sequence, 100)
    assert made.make_room_to_decode(1)
    assert list(made.running) == [first]
    assert made.blocks.free == 3
    for _ in range(BLOCK):
        assert not made.make_room_to_decode(1)
        made.decode(1)
    made.waiting.clear()
    made.remove(first)
    assert (first.generated, made.blocks.free, made.decoding, made.context_tokens) == (BLOCK, 5, 0, 0)
    assert (second.tokens, second.computed, second.blocks) == (2 * BLOCK, 0, 0)


def test_an_answer_that_was_preempted_does_not_end_at_its_old_place() -> None:
    made = batch()
    (sequence,) = queue(made, 16)
    made.continue_prompts()
    made.admit(lambda sequence: Turn.ADMITTED)
    made.end_chunks()
    made.start_decoding(sequence, 3)
    assert made.tokens_to_next_end() == 3
    made.decode(2)
    made.remove(sequence)
    made.decode(1)
    assert made.end_answers() == []
    made.running[sequence] = None
    made.start_decoding(sequence, 4)
    assert made.tokens_to_next_end() == 4
    made.decode(5)
    assert made.end_answers() == [(sequence, 1)]
