import json

import numpy as np
import pytest

from trade import Condition, TradeError
from trade.config import brief, from_json, to_json
from trade.flows import MLP, Normal, PowerScaled, ResidualMLP, SplineFlow

CLASSES = {c.__name__: c for c in (Condition, MLP, Normal, PowerScaled, ResidualMLP, SplineFlow)}
RECIPES = [
    SplineFlow((2,), Condition(0.5, 2.0)),
    SplineFlow(
        (2, 3),
        Condition(-1.0, 2.0, scale="linear", boundary=(0.0, 1.0)),
        observation_size=4,
        blocks=3,
        bins=7,
        interval=5.5,
        network=ResidualMLP(32, 2, "relu"),
        embedding=4,
        latent=PowerScaled(1.0, 2.0),
        conditional=False,
        adapter=8,
        reach=0.5,
        unroll=2,
    ),
    SplineFlow((2,), Condition(0.0, 1.0, "linear", (0.0,), knee=0.1), whiten=True, bounds=((0.0, None), None)),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=["default", "everything else", "walls"])
def test_recipe_survives_json(recipe):
    text = json.dumps(to_json(recipe))
    again = from_json(json.loads(text), CLASSES)
    assert again == recipe
    assert type(again.shape) is tuple
    assert type(again.network) is type(recipe.network)


def test_unknown_class_is_refused():
    saved = to_json(RECIPES[0])
    saved["network"]["class"] = "Popen"
    with pytest.raises(TradeError, match="names 'Popen', which is not one of Condition, MLP"):
        from_json(saved, CLASSES)


@pytest.mark.parametrize("name", [["MLP"], {"class": "MLP"}, None, 3])
def test_class_that_is_not_a_name_is_refused(name):
    with pytest.raises(TradeError, match="names"):
        from_json({"class": name}, CLASSES)


def test_fields_that_do_not_fit_are_refused():
    with pytest.raises(TradeError, match=r"does not fit MLP: .*height"):
        from_json({"class": "MLP", "height": 3}, CLASSES)
    with pytest.raises(TradeError, match=r"does not fit SplineFlow: .*condition"):
        from_json({"class": "SplineFlow", "shape": [2]}, CLASSES)


def test_values_are_checked_again_when_loaded():
    saved = to_json(RECIPES[0])
    saved["blocks"] = 0
    with pytest.raises(TradeError, match="blocks"):
        from_json(saved, CLASSES)


def test_arrays_and_numpy_scalars_become_plain_numbers():
    value = {"a": np.arange(3), "b": np.float32(0.5), "c": (np.int64(2), np.bool_(True)), "d": np.eye(2), 5: None}
    text = json.dumps(to_json(value))
    assert json.loads(text) == {"a": [0, 1, 2], "b": 0.5, "c": [2, True], "d": [[1, 0], [0, 1]], "5": None}


def test_what_has_no_plain_form_becomes_its_repr():
    assert to_json({"f": len}) == {"f": {"repr": "<built-in function len>"}}
    assert to_json(MLP) == {"repr": repr(MLP)}  # a class is not one of its instances


def test_in_brief_is_what_differs_from_the_defaults():
    recipe = RECIPES[1]
    left_out = ("shape", "condition", "observation_size", "latent", "network")
    expected = (
        "SplineFlow(blocks=3, bins=7, interval=5.5, reach=0.5, adapter=8, embedding=4, conditional=False, unroll=2)"
    )
    assert brief(recipe, left_out) == expected
    assert brief(MLP()) == "MLP()"
    assert brief(SplineFlow((2,), RECIPES[0].condition, network=MLP(7)), ("condition",)) == (
        "SplineFlow(shape=(2,), network=MLP(width=7))"
    )
    assert brief(len) == "builtin_function_or_method"
