"""Muon, the optimizer of the embedded model's matrices, by hand."""

import pytest
import torch
from torch import Tensor

from pretraining.muon import Muon, orthogonalized

pytestmark = pytest.mark.model  # weights of a few numbers


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
    """Return the distance that one step moves the weight."""
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
