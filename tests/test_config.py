import json
from dataclasses import dataclass

import numpy as np
import pytest

from trade import Condition, Target, TradeError, register
from trade.config import brief, describe_target, from_json, is_registered, to_json
from trade.flows import MLP, PowerScaled, ResidualMLP, SplineFlow
from trade.targets import Augmented, MultiWell

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
    SplineFlow(
        (2,),
        Condition(0.0, 1.0, "linear", (0.0,), knee=0.1),
        whiten=True,
        sources=(1,),
        tails=True,
        bounds=((0.0, None), None),
    ),
]


@pytest.mark.parametrize("recipe", RECIPES, ids=["default", "everything else", "boundaries"])
def test_recipe_survives_json(recipe):
    text = json.dumps(to_json(recipe))
    again = from_json(json.loads(text))
    assert again == recipe
    assert type(again.shape) is tuple
    assert type(again.network) is type(recipe.network)


def test_unknown_class_is_refused():
    saved = to_json(RECIPES[0])
    saved["network"]["class"] = "Popen"
    with pytest.raises(TradeError, match="names 'Popen', which is not registered"):
        from_json(saved)


@pytest.mark.parametrize("name", [["MLP"], {"class": "MLP"}, None, 3])
def test_class_that_is_not_a_name_is_refused(name):
    with pytest.raises(TradeError, match="names"):
        from_json({"class": name})


def test_fields_that_do_not_fit_are_refused():
    with pytest.raises(TradeError, match=r"does not fit MLP: .*height"):
        from_json({"class": "MLP", "height": 3})
    with pytest.raises(TradeError, match=r"does not fit SplineFlow: .*condition"):
        from_json({"class": "SplineFlow", "shape": [2]})


def test_values_are_checked_again_when_loaded():
    saved = to_json(RECIPES[0])
    saved["blocks"] = 0
    with pytest.raises(TradeError, match="blocks"):
        from_json(saved)


def test_arrays_and_numpy_scalars_become_plain_numbers():
    value = {"a": np.arange(3), "b": np.float32(0.5), "c": (np.int64(2), np.bool_(True)), "d": np.eye(2), 5: None}
    text = json.dumps(to_json(value))
    assert json.loads(text) == {"a": [0, 1, 2], "b": 0.5, "c": [2, True], "d": [[1, 0], [0, 1]], "5": None}


def test_what_has_no_plain_form_becomes_its_repr():
    assert to_json({"f": len}) == {"f": {"repr": "builtins.len"}}
    assert to_json(MLP) == {"repr": "trade.flows.conditioner.MLP"}  # a class is not one of its instances
    assert to_json(3j) == {"repr": "3j"}


def test_a_function_is_named_and_not_its_place_in_memory():
    """So that a resumed run, in another process, has the same settings."""
    one, two = (to_json(lambda x: x) for _ in range(2))
    assert one == two
    assert "0x" not in one["repr"]


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


def test_register_makes_a_class_known_and_refuses_a_name_that_is_taken():
    @register
    @dataclass(frozen=True)
    class Wobble:
        width: float = 1.0

    assert from_json(to_json(Wobble(2.0))) == Wobble(2.0)
    assert is_registered(Wobble())
    with pytest.raises(TradeError, match=r"has a class MLP of trade\.flows\.conditioner already"):
        register(dataclass(type("MLP", (), {})))
    for nothing in (3, "MLP", len, type("Plain", (), {})):
        with pytest.raises(TradeError, match="register takes"):
            register(nothing)


def test_a_class_of_the_same_name_is_not_ours():
    """Not by its name, but by what it is."""

    class ScalarField(Target):
        def config(self):
            return {"size": 3}

    own = ScalarField(lambda x, c: -(x**2).sum() / c, (1,), Condition(0.5, 1.0))
    assert not is_registered(own)
    assert describe_target(own) is None
    assert describe_target(Augmented(own, 2)) is None
    assert describe_target(Augmented(MultiWell(d=2), 2))["inner"]["class"] == "MultiWell"
