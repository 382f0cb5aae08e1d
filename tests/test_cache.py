"""Data that is made once, and made again when the file is not what was written."""

import numpy as np
import pytest

from trade.experiments.cache import cached


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("TRADE_CACHE", str(tmp_path / "cache"))
    calls = []

    def get(**settings):
        def make():
            calls.append(settings)
            return {"x": np.arange(3.0) + len(calls)}

        return cached("numbers", settings, make)["x"]

    return get, calls, tmp_path / "cache"


def test_made_once_for_each_setting(made):
    get, calls, _ = made
    first = get(n=1)
    np.testing.assert_array_equal(get(n=1), first)
    assert len(calls) == 1
    assert get(n=2)[0] != first[0]
    assert calls == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_damaged_file_is_made_again(made, suffix):
    get, calls, folder = made
    get(n=1)
    (path,) = folder.glob(f"*{suffix}")
    path.write_bytes(path.read_bytes()[:-10])
    second = get(n=1)
    assert len(calls) == 2
    np.testing.assert_array_equal(get(n=1), second)
    assert len(calls) == 2
