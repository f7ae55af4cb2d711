"""Random tokens of large vocabularies, against a nucleus that is computed by hand."""

from collections import Counter

import pytest
import torch

from arc_refinery.sampling.backends import Decoding
from arc_refinery.sampling.draws import SMALL_VOCABULARY, Draws, tokens_at

pytestmark = [pytest.mark.model, pytest.mark.usefixtures("on_a_cpu")]

VOCABULARY = 6000
N_PLACES = 20_000


def shares(scores: torch.Tensor, top_p: float, top_k: int) -> dict[int, float]:
    """The share of each token that a row of scores can give, if places are equally far apart."""
    places = (torch.arange(N_PLACES) + 0.5) / N_PLACES
    tokens = torch.cat([tokens_at(some, scores.expand(len(some), -1), top_p, top_k) for some in places.split(500)])
    return {token: n / N_PLACES for token, n in Counter(tokens.tolist()).items()}


def by_hand(scores: torch.Tensor, top_p: float, top_k: int) -> dict[int, float]:
    probabilities = scores.double().softmax(-1).tolist()
    first = sorted(range(len(probabilities)), key=lambda token: -probabilities[token])[: top_k or None]
    total, before, kept = sum(probabilities[token] for token in first), 0.0, {}
    for token in first:
        if before < top_p * total:
            kept[token] = probabilities[token]
        before += probabilities[token]
    return {token: probability / sum(kept.values()) for token, probability in kept.items()}


@pytest.mark.parametrize(
    ("top_p", "top_k"), [(0.9, 0), (1.0, 0), (1.0, 5), (0.8, 20), (1e-6, 0), (1.0, VOCABULARY + 1)]
)
def test_each_token_has_its_share_and_no_other_is_drawn(top_p: float, top_k: int) -> None:
    scores = torch.full((VOCABULARY,), -12.0)
    scores[torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(0))[:40]] = torch.linspace(3, -3, 40)
    expected = by_hand(scores, top_p, top_k)
    drawn = shares(scores, top_p, top_k)
    assert set(drawn) <= set(expected)
    for token, probability in expected.items():
        assert drawn.get(token, 0) == pytest.approx(probability, abs=1.5 / N_PLACES)


def test_equal_probabilities_are_cut_too() -> None:
    assert len(shares(torch.zeros(1000), 0.25, 0)) == pytest.approx(250, abs=1)


def test_a_request_gets_its_tokens_whatever_is_drawn_beside_it() -> None:
    scores = torch.randn(5, SMALL_VOCABULARY + 1, generator=torch.Generator().manual_seed(1))
    decoding = Decoding(temperature=1.0, top_p=0.9, max_output_tokens=1)
    alone = Draws(decoding, [7], [3], "cpu")
    beside = Draws(decoding, [4, 7], [2, 3], "cpu")
    for rows in ([0, 1, 2], [0, 2], [2]):  # the second row ends, then the first
        tokens = alone.next_tokens(scores[2:][rows], torch.tensor(rows))
        others = torch.tensor([0, *(2 + row for row in rows)])
        assert beside.next_tokens(scores[others], others)[1:].tolist() == tokens.tolist()
