"""A little fuzzing at every run of the tests; `python -m tests.fuzz` is the same on a grand scale."""

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz.targets import targets

FEW = {"pages": 4}


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_whatever_comes_is_taken_or_refused_by_design(target):
    @settings(max_examples=FEW.get(target.name, 60), suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def fuzz(value):
        target.check(value)

    fuzz()
