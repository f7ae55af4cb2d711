"""Random streams: equal addresses give equal numbers, in this process and in every other."""

import subprocess
import sys

import pytest

from arc_refinery.seeding import stream, stream_seed


@pytest.mark.parametrize(
    ("address", "digest"),
    [  # the first 16 digits that sha256sum prints for the parts joined by the byte 1f
        ((7,), "7902699be42c8a8e"),
        ((0, "augment", "t1"), "2d07bd5e4282a860"),
    ],
)
def test_a_seed_is_the_first_63_bits_of_the_addresss_sha256(address: tuple[int | str, ...], digest: str):
    assert stream_seed(*address) == int(digest, 16) // 2


def test_a_seed_is_the_same_in_a_process_with_other_string_hashes():
    code = "from arc_refinery.seeding import stream_seed; print(stream_seed(3, 'parts', 'task'))"
    seeds = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True
        ).stdout
        for salt in "12"
    }
    assert seeds == {f"{stream_seed(3, 'parts', 'task')}\n"}


def test_neighbouring_addresses_have_different_seeds():
    addresses = [(seed, stage, task) for seed in range(10) for stage in ("a", "b") for task in range(50)]
    assert len({stream_seed(*address) for address in addresses}) == 1000


def test_parts_of_an_address_do_not_run_together():
    assert len({stream_seed("ab", "c"), stream_seed("a", "bc"), stream_seed("abc"), stream_seed(1, 23)}) == 4
    assert stream_seed(12, 3) != stream_seed(1, 23)


def test_seeds_fit_into_a_signed_64_bit_column():
    assert all(0 <= stream_seed(number) < 2**63 for number in range(1000))


def test_equal_addresses_give_equal_streams():
    assert stream(1, "x").integers(1000, size=20).tolist() == stream(1, "x").integers(1000, size=20).tolist()


def test_a_stream_does_not_depend_on_draws_from_another():
    undisturbed = stream(1, "x").random(5).tolist()
    stream(1, "y").random(100)
    assert stream(1, "x").random(5).tolist() == undisturbed
