"""Sums of digests by bucket, and pairs of rows, held against what counting says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.compare._buckets import Buckets, buckets_for
from headgate.compare._digests import Digests
from headgate.compare._verify_match import contents, pair, take

ODD = 0x9E3779B97F4A7C15
rows_of = st.lists(st.integers(0, 12), max_size=40)


def digests(values: list[int]) -> Digests:
    """Of a row with this value; two values have the same low half."""
    low = np.array([(value // 2 * ODD) % 2**64 for value in values], np.uint64)
    high = np.array([(value * ODD * ODD) % 2**64 for value in values], np.uint64)
    return low, high


def bucket(*parts: list[int], number: int = 64) -> Buckets:
    whole = Buckets(number)
    for part in parts:
        one = whole.empty()
        one.add(digests(part), digests(part))
        whole.merge(one)
    return whole


@given(source=rows_of, target=rows_of, cut=st.integers(0, 40))
def test_buckets_differ_where_contents_do(source: list[int], target: list[int], cut: int) -> None:
    """However the rows are divided and ordered."""
    ours = bucket(source[:cut], source[cut:])
    theirs = bucket(sorted(target))
    differing = ours.differing(theirs)
    assert int(ours.counts.sum()) == len(source)
    unequal = [value for value in range(13) if source.count(value) != target.count(value)]
    where = {int(number) for number in ours.of(digests(unequal))}
    assert {*np.flatnonzero(differing).tolist()} == where
    assert {*np.flatnonzero(bucket(source, target).differing(bucket(target, source))).tolist()} == set()


def test_sums_carry() -> None:
    """Into the upper half, when rows are added and when parts are."""
    most = np.full(1, 2**64 - 1, np.uint64)
    keys = np.zeros(1, np.uint64), np.zeros(1, np.uint64)

    def of(*rows: tuple[Any, Any]) -> Buckets:
        sums = Buckets(64)
        for row in rows:
            sums.add(keys, row)
        return sums

    nothing, one, two = (np.full(1, n, np.uint64) for n in range(3))
    carried = of((most, nothing), (one, nothing))
    assert not carried.differing(of((nothing, one), (nothing, nothing))).any()
    merged = of((most, nothing))
    merged.merge(of((one, nothing)))
    assert not merged.differing(carried).any()
    assert of((most, nothing), (one, nothing)).differing(of((nothing, nothing), (nothing, nothing))).any()
    assert not of((most, most), (two, nothing)).differing(of((one, nothing), (nothing, nothing))).any()


def test_marked_buckets_differ() -> None:
    rows = digests([1, 2, 3, 4])
    ours, theirs = Buckets(64), Buckets(64)
    ours.add(rows, rows, np.array([False, True, False, False]))
    theirs.add(rows, rows)
    marked = ours.of(take(rows, np.array([1])))
    merged = ours.empty()
    merged.merge(ours)
    for differing in (ours.differing(theirs), theirs.differing(ours), merged.differing(theirs)):
        assert np.flatnonzero(differing).tolist() == marked.tolist()


@pytest.mark.parametrize(("rows", "number"), [(0, 64), (10_000, 128), (3_000_000, 1 << 15), (10**9, 1 << 18)])
def test_the_number_of_buckets(rows: int, number: int) -> None:
    assert buckets_for(rows) == number


@given(source=rows_of, target=rows_of)
def test_pairs(source: list[int], target: list[int]) -> None:
    pairs = pair(digests(source), digests(target))
    ours, theirs = np.array(source, np.int64), np.array(target, np.int64)
    assert pairs.source.tolist() == sorted(pairs.source.tolist())
    assert ours[pairs.source].tolist() == theirs[pairs.target].tolist()
    assert Counter(ours[pairs.source].tolist()) == Counter(source) & Counter(target)
    assert Counter(ours[pairs.only_source].tolist()) == Counter(source) - Counter(target)
    assert Counter(theirs[pairs.only_target].tolist()) == Counter(target) - Counter(source)
    assert sorted([*pairs.source, *pairs.only_source]) == list(range(len(source)))
    assert sorted([*pairs.target, *pairs.only_target]) == list(range(len(target)))


@given(sides=st.lists(rows_of, min_size=1, max_size=3))
def test_contents(sides: list[list[int]]) -> None:
    values = [value for side in sides for value in side]
    numbers = [int(number) for side in contents(*(digests(side) for side in sides)) for number in side]
    assert [len(side) for side in contents(*(digests(side) for side in sides))] == [len(side) for side in sides]
    assert {*numbers} == set(range(len({*values})))
    assert len({*zip(values, numbers, strict=True)}) == len({*values})
