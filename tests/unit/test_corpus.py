"""What the embedded model is trained on, and the optimizer of its matrices."""

import re

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from arc_refinery.pretraining.corpus import Batch, Corpus, TaskConversations
from arc_refinery.pretraining.muon import Muon, orthogonalized
from arc_refinery.pretraining.tokenizer import build_tokenizer

BATCH_TOKENS = 2048
LAST = 95  # of 100 chunks: the last stage of the curriculum, whose conversations have second turns


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return build_tokenizer(2048)


@pytest.fixture(scope="module")
def corpus(tokenizer: PreTrainedTokenizerFast) -> Corpus:
    return Corpus(TaskConversations(tokenizer), seed=3, n_chunks=100, chunk_size=16, batch_tokens=BATCH_TOKENS)


@pytest.fixture(scope="module")
def early(corpus: Corpus) -> list[Batch]:
    return [batch for chunk in range(3) for batch in corpus[chunk]]


@pytest.fixture(scope="module")
def late(corpus: Corpus) -> list[Batch]:
    return [batch for chunk in range(LAST, LAST + 3) for batch in corpus[chunk]]


def rows(batches: list[Batch]) -> list[tuple[list[int], list[bool], list[bool]]]:
    return [
        (ids.tolist(), answer.tolist(), outputs.tolist())
        for batch in batches
        for ids, answer, outputs in zip(batch.ids, batch.answer, batch.outputs, strict=True)
    ]


def marked(tokenizer: PreTrainedTokenizerFast, ids: list[int], mask: list[bool]) -> str:
    return str(tokenizer.decode([number for number, kept in zip(ids, mask, strict=True) if kept]))


def unpadded(tokenizer: PreTrainedTokenizerFast, ids: list[int]) -> str:
    return str(tokenizer.decode(ids)).replace("<|pad|>", "")


def test_an_item_is_the_same_each_time(corpus: Corpus, tokenizer: PreTrainedTokenizerFast) -> None:
    other = Corpus(TaskConversations(tokenizer), seed=3, n_chunks=100, chunk_size=16, batch_tokens=BATCH_TOKENS)
    first, again = corpus[LAST], other[LAST]
    assert len(first) == len(again)
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one.ids, two.ids)
        assert torch.equal(one.answer, two.answer)
        assert torch.equal(one.outputs, two.outputs)


def test_items_and_seeds_differ(corpus: Corpus, tokenizer: PreTrainedTokenizerFast) -> None:
    def conversations(batches: list[Batch]) -> set[tuple[int, ...]]:
        return {tuple(ids) for ids, _, _ in rows(batches)}

    other_seed = Corpus(TaskConversations(tokenizer), seed=4, n_chunks=100, chunk_size=16, batch_tokens=BATCH_TOKENS)
    assert conversations(corpus[0]).isdisjoint(conversations(corpus[1]) | conversations(other_seed[0]))


def test_a_chunk_holds_chunk_size_conversations(corpus: Corpus) -> None:
    assert len(corpus) == 100
    assert [len(rows(corpus[chunk])) for chunk in (0, LAST)] == [16, 16]


def test_batches_hold_at_most_batch_tokens_padded_tokens(early: list[Batch], late: list[Batch]) -> None:
    for batch in early + late:
        assert batch.ids.numel() <= BATCH_TOKENS
        assert batch.ids.shape == batch.answer.shape == batch.outputs.shape
        assert batch.ids.shape[1] % 32 == 0


def test_a_batch_is_padded_no_further_than_its_longest_conversation_asks(
    early: list[Batch], late: list[Batch], tokenizer: PreTrainedTokenizerFast
) -> None:
    for batch in early + late:
        longest = int((batch.ids != tokenizer.pad_token_id).sum(1).max())
        assert batch.ids.shape[1] - longest < 32


def test_conversations_get_longer_in_later_stages(corpus: Corpus, tokenizer: PreTrainedTokenizerFast) -> None:
    def longest(chunk: int) -> int:
        return max(sum(number != tokenizer.pad_token_id for number in ids) for ids, _, _ in rows(corpus[chunk]))

    assert longest(0) <= 384 < longest(LAST) <= 1024


def test_answer_marks_the_last_assistant_turn_with_its_end_token(
    early: list[Batch], late: list[Batch], tokenizer: PreTrainedTokenizerFast
) -> None:
    for ids, answer, _ in rows(early + late):
        text = unpadded(tokenizer, ids)
        assert marked(tokenizer, ids, answer) == text.rpartition("<|assistant|>")[2]
        assert text.endswith("    return grid\n```<|end|>")
        last = max(place for place, number in enumerate(ids) if number != tokenizer.pad_token_id)
        assert answer[last - sum(answer) + 1 : last + 1] == [True] * sum(answer)  # at that place and nowhere else


def test_outputs_mark_the_output_grids_of_the_first_user_turn(
    early: list[Batch], late: list[Batch], tokenizer: PreTrainedTokenizerFast
) -> None:
    for ids, _, outputs in rows(early + late):
        first_turn = unpadded(tokenizer, ids).partition("<|assistant|>")[0]
        grids = re.findall(r"\noutput (\d+x\d+(?:\n\d+ \d+)+)", first_turn)
        assert len(grids) == first_turn.count("\noutput ") >= 2
        assert marked(tokenizer, ids, outputs) == "".join(grids)
        marked_places = np.flatnonzero(outputs)
        assert marked_places.max() < ids.index(tokenizer.convert_tokens_to_ids("<|assistant|>"))


def test_padding_is_on_the_right_and_carries_no_loss(
    early: list[Batch], late: list[Batch], tokenizer: PreTrainedTokenizerFast
) -> None:
    n_padded = 0
    for batch in early + late:
        padding = batch.ids == tokenizer.pad_token_id
        assert not (padding & (batch.answer | batch.outputs)).any()
        assert (padding.long().diff(dim=1) >= 0).all()
        n_padded += int(padding.sum())
    assert n_padded > 0


def test_no_token_carries_both_losses(early: list[Batch], late: list[Batch]) -> None:
    assert not any((batch.answer & batch.outputs).any() for batch in early + late)


def test_second_turns_appear_in_later_stages_only(
    early: list[Batch], late: list[Batch], tokenizer: PreTrainedTokenizerFast
) -> None:
    def n_turns(batches: list[Batch]) -> list[int]:
        return [ids.count(tokenizer.convert_tokens_to_ids("<|assistant|>")) for ids, _, _ in rows(batches)]

    assert set(n_turns(early)) == {1}
    assert set(n_turns(late)) == {1, 2}


def test_a_second_turn_corrects_a_wrong_program_after_feedback(
    late: list[Batch], tokenizer: PreTrainedTokenizerFast
) -> None:
    texts = [unpadded(tokenizer, ids) for ids, _, _ in rows(late)]
    refined = [text for text in texts if text.count("<|assistant|>") == 2]
    assert refined
    for text in refined:
        _, wrong, right = text.split("<|assistant|>")
        answered, _, feedback = wrong.partition("<|end|><|user|>")
        assert feedback.startswith("Executing your program gave:\npair 1 ")
        assert feedback.endswith("\nWrite a corrected program.")
        assert " wrong, pixel similarity " in feedback
        assert answered != right.removesuffix("<|end|>")


@pytest.mark.parametrize("shape", [(8, 8), (64, 16), (16, 64), (128, 384), (384, 128)])
def test_orthogonalized_matrices_have_singular_values_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape)
    for matrix in orthogonalized(matrices):
        singular = torch.linalg.svdvals(matrix)
        assert singular[:-1].min() > 0.6  # the smallest one of a square matrix may be too near 0 to be raised
        assert singular.max() < 1.3
        assert len(singular) == min(shape)
        if shape[0] != shape[1]:
            assert singular[-1] > 0.6


def test_orthogonalizing_keeps_the_singular_vectors() -> None:
    torch.manual_seed(1)
    matrix = torch.randn(12, 5)
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    rotated = left.mT @ orthogonalized(matrix[None])[0] @ right.mT  # diagonal in the matrix's own vectors
    assert torch.allclose(rotated, torch.diag(rotated.diagonal()), atol=1e-3)
    assert (rotated.diagonal() > 0.6).all()


def test_orthogonalizing_does_not_depend_on_scale_or_on_the_other_matrices() -> None:
    torch.manual_seed(2)
    one, two = torch.randn(6, 4), torch.randn(6, 4)
    together = orthogonalized(torch.stack([one, 1000 * two]))
    assert torch.allclose(together[0], orthogonalized(one[None])[0], atol=1e-4)
    assert torch.allclose(together[1], orthogonalized(two[None])[0], atol=1e-4)


def quintic(value: float) -> float:
    """Five Newton-Schulz steps of one singular value (Jordan et al. 2024)."""
    for _ in range(5):
        value = 3.4445 * value - 4.7750 * value**3 + 2.0315 * value**5
    return value


def stepped(weight: Tensor, gradient: Tensor, lr: float) -> Tensor:
    """How far one step moves the weight."""
    parameter = torch.nn.Parameter(weight.clone())
    parameter.grad = gradient.clone()
    Muon([parameter], lr=lr).step()
    return parameter.detach() - weight


def test_a_step_along_a_rank_one_gradient_is_exact() -> None:
    # normalised, the only singular value of u v^T is 1, whatever the gradient's length
    left, right = torch.tensor([0.6, 0.8, 0.0]), torch.tensor([0.0, 0.0, 1.0, 0.0])
    moved = stepped(torch.ones(3, 4), 7.0 * torch.outer(left, right), lr=0.1)
    assert torch.allclose(moved, -0.1 * quintic(1.0) * torch.outer(left, right), atol=1e-4)


def test_a_tall_matrix_moves_by_the_root_of_rows_over_columns() -> None:
    left, right = torch.zeros(8), torch.tensor([1.0, 0.0])
    left[3] = 1.0
    moved = stepped(torch.zeros(8, 2), torch.outer(left, right), lr=0.1)
    assert float(moved.norm()) == pytest.approx(0.1 * 2.0 * abs(quintic(1.0)), rel=1e-3)  # sqrt(8 / 2) = 2
    assert float(moved[3, 0]) < 0


def test_a_diagonal_gradient_moves_each_entry_against_its_sign() -> None:
    # the Frobenius norm of diag(3, -4) is 5: singular values 0.6 and 0.8 enter the iteration
    moved = stepped(torch.zeros(2, 2), torch.diag(torch.tensor([3.0, -4.0])), lr=0.5)
    expected = torch.diag(torch.tensor([-0.5 * quintic(0.6), 0.5 * quintic(0.8)]))
    assert torch.allclose(moved, expected, atol=1e-4)


def test_momentum_goes_on_after_the_gradient_is_gone() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    optimizer = Muon([parameter], lr=0.1)
    parameter.grad = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    optimizer.step()
    parameter.grad = torch.zeros(2, 3)
    optimizer.step()
    assert float(parameter.detach()[0, 0]) == pytest.approx(2 * -0.1 * quintic(1.0), rel=1e-3)


def test_weights_of_one_shape_are_stepped_independently() -> None:
    torch.manual_seed(3)
    gradients = [torch.randn(4, 6) for _ in range(3)]
    together = [torch.nn.Parameter(torch.zeros(4, 6)) for _ in gradients]
    for parameter, gradient in zip(together, gradients, strict=True):
        parameter.grad = gradient.clone()
    Muon(together, lr=0.1).step()
    for parameter, gradient in zip(together, gradients, strict=True):
        assert torch.allclose(parameter, stepped(torch.zeros(4, 6), gradient, lr=0.1), atol=1e-5)
