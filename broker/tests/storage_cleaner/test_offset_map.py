"""The map of newest offsets against a dict, in a bounded number of bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.storage.cleaner.cleaned_segment import SLOT_BYTES, OffsetMap

KEYS = st.binary(max_size=3)


@given(keys=st.lists(KEYS, max_size=200), load_factor=st.sampled_from([0.5, 0.9, 1.0]))
def test_the_offset_map_agrees_with_a_dict(keys: list[bytes], load_factor: float) -> None:
    offsets = OffsetMap(1 << 20, len(keys), load_factor)
    expected = {}
    for offset, key in enumerate(keys):
        assert offsets.put(key, offset)
        expected[key] = offset
    assert {key: offsets.get(key) for key in expected} == expected
    assert offsets.count == len(expected)
    assert offsets.get(b"never put") == -1


@given(keys=st.lists(KEYS, min_size=1, max_size=300), slots=st.integers(1, 40))
def test_a_full_offset_map_accepts_new_offsets_only_for_its_keys(keys: list[bytes], slots: int) -> None:
    offsets = OffsetMap(slots * SLOT_BYTES, 1000, 0.9)
    expected: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        fits = key in expected or len(expected) < offsets.count_max
        assert offsets.put(key, offset) == fits
        if fits:
            expected[key] = offset
    assert {key: offsets.get(key) for key in set(keys)} == {key: expected.get(key, -1) for key in keys}


@pytest.mark.parametrize("slots", [10, 100, 5000])
def test_the_offset_map_holds_as_many_keys_as_fit_in_its_bytes(slots: int) -> None:
    offsets = OffsetMap(slots * SLOT_BYTES, 10**9, 0.9)
    assert 0.6 * slots <= offsets.count_max <= slots
    assert all(offsets.put(b"key %d" % number, number) for number in range(offsets.count_max))
    assert not offsets.put(b"one more", 1)


def test_an_offset_map_for_few_keys_takes_few_bytes_however_many_are_allowed() -> None:
    assert OffsetMap(1 << 40, 10, 0.9).count_max < 30
