"""The garbage collector is left as it was."""

import gc

import pytest

from ella.garbage_collection import RARELY, rarely_collected


@pytest.fixture
def often_collected():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("often_collected")
def test_the_garbage_collector_is_as_before_after_tracing() -> None:
    def fail() -> None:
        with rarely_collected():
            assert gc.get_threshold() == RARELY
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert gc.get_threshold() == (700, 10, 10)
