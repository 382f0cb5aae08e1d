"""What a user gives, kind by kind: what is taken, in which form it comes back, and what is refused in one sentence."""

from dataclasses import dataclass
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trade import TradeError, check

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
NO_NUMBERS = [
    None,
    True,
    np.True_,
    np.array(True),
    "1",
    "word",
    b"1",
    1j,
    np.complex64(1.0),
    [],
    [1],
    (1,),
    {},
    np.zeros(1),
    np.zeros(3),
    np.array(None),
    np.array("1"),
    jnp.zeros(2),
    jnp.array(True),
    Ellipsis,
    float,
    float("nan"),
    float("inf"),
    -np.inf,
    jnp.array(jnp.nan),
    10**400,
]
NO_INTEGERS = [*NO_NUMBERS[:-1], 1.0, 1.5, np.float64(2.0), jnp.array(2.0), Fraction(2), np.zeros((), float)]
ids = {"ids": lambda v: check.shown(v)[:30]}


def sentence(error) -> str:
    text = str(error.value)
    assert "\n" not in text and len(text) <= 300 and text.endswith(".")
    return text


# One number


@given(st.data(), st.sampled_from(INTEGERS))
def test_integers_of_all_sizes_come_back_as_python_integers(data, dtype):
    value = data.draw(st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)))
    for form in (value, dtype(value), np.array(value, dtype)):
        found = check.integer(form, "n", least=-(2**70))
        assert type(found) is int and found == value
        assert check.number(form, "n") == pytest.approx(value)


@given(st.integers(-50, 50), st.integers(-50, 50), st.one_of(st.none(), st.integers(-50, 50)))
def test_an_integer_is_taken_within_its_bounds_alone(value, least, most):
    inside = least <= value and (most is None or value <= most)
    if inside:
        assert check.integer(value, "n", least, most) == value
    else:
        with pytest.raises(TradeError, match=r"^n must be an integer .*, got -?\d+\.$"):
            check.integer(value, "n", least, most)


@pytest.mark.parametrize("value", NO_INTEGERS, **ids)
def test_what_is_no_integer_is_refused(value):
    with pytest.raises(TradeError, match="steps must be an integer of at least 1, got ") as error:
        check.integer(value, "steps")
    sentence(error)


def test_integers_of_jax_are_taken():
    assert check.integer(jnp.array(3), "n") == 3
    assert check.number(jnp.array(3), "n") == 3.0


@given(st.data(), st.sampled_from(FLOATS))
def test_floats_of_all_sizes_come_back_as_python_floats(data, dtype):
    width = 8 * np.dtype(dtype).itemsize
    value = data.draw(st.floats(width=width, allow_nan=False, allow_infinity=False))  # pyright: ignore
    for form in (dtype(value), np.array(value, dtype)):
        found = check.number(form, "x")
        assert type(found) is float and found == value


def test_other_numbers_are_taken():
    assert check.number(Fraction(1, 4), "x") == 0.25
    assert check.number(jnp.bfloat16(1.5), "x") == 1.5
    assert check.number(jnp.array(0.5), "x") == 0.5


@given(st.floats(-3, 3), st.booleans(), st.booleans())
def test_a_number_is_taken_within_its_bounds_alone(value, open_low, open_high):
    inside = (value > -1 if open_low else value >= -1) and (value < 2 if open_high else value <= 2)
    options = {"open_low": open_low, "open_high": open_high}
    if inside:
        assert check.number(value, "x", -1, 2, **options) == value
    else:
        with pytest.raises(TradeError, match="x must be a number in ") as error:
            check.number(value, "x", -1, 2, **options)
        assert ("(-1, " in sentence(error)) == open_low and ("2)" in sentence(error)) == open_high


@pytest.mark.parametrize("value", NO_NUMBERS, **ids)
def test_what_is_no_number_is_refused(value):
    with pytest.raises(TradeError, match=r"^rate must be a finite number, got ") as error:
        check.number(value, "rate")
    sentence(error)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"low": 0, "open_low": True}, "a positive number"),
        ({"low": 0}, "a number that is not negative"),
        ({"low": 1}, "a number of at least 1"),
        ({"low": 1, "open_low": True}, "a number above 1"),
        ({"high": -2}, "a number of at most -2"),
        ({"high": -2, "open_high": True}, "a number below -2"),
        ({"takes": "a fraction"}, "a fraction"),
    ],
)
def test_bounds_are_said_in_words(bounds, words):
    with pytest.raises(TradeError, match=f"x must be {words}, got 'word'."):
        check.number("word", "x", **bounds)


def test_a_traced_number_is_refused_in_a_sentence():
    for function in (lambda v: check.number(v, "x"), lambda v: check.integer(v, "x")):
        with pytest.raises(TradeError, match="x must be"):
            jax.jit(function)(1)


# Attributes of a class


@dataclass(frozen=True)
class Settings:
    count: object = 3
    part: object = 0.5
    quick: object = True

    def __post_init__(self):
        check.integers(self, count=2)
        check.numbers(self, "part", low=0, high=1, open_high=True)
        check.flags(self, "quick")


def test_settings_are_kept_as_plain_numbers():
    made = Settings(np.int32(4), jnp.array(0.25), np.False_)
    assert (made.count, made.part, made.quick) == (4, 0.25, False)
    assert [type(v) for v in vars(made).values()] == [int, float, bool]
    assert hash(made) == hash(Settings(4, 0.25, False))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 1}, "Settings count must be an integer of at least 2, got 1."),
        ({"part": 1.0}, r"Settings part must be a number in \[0, 1\), got 1.0."),
        ({"quick": 1}, "Settings quick must be True or False, got 1."),
    ],
)
def test_settings_are_refused_by_the_name_of_their_class(options, message):
    with pytest.raises(TradeError, match=f"^{message}$"):
        Settings(**options)


# Keys, words, functions, members


@pytest.mark.parametrize("seed", [0, 7])
def test_typed_and_raw_keys_are_taken(seed):
    for key in (jax.random.key(seed), jax.random.key(seed, impl="rbg"), jax.random.PRNGKey(seed)):
        assert check.random_key(key) is not None
    raw = np.asarray(jax.random.PRNGKey(seed))
    np.testing.assert_array_equal(jax.random.bits(check.random_key(raw)), jax.random.bits(jax.random.key(seed)))
    drawn = jax.vmap(lambda k: jax.random.uniform(check.random_key(k)))(jax.random.split(jax.random.key(0), 3))
    assert drawn.shape == (3,)


NO_KEYS = [None, 0, True, 1.5, "key", [0, 1], np.zeros(2), np.zeros(3, np.uint32), jax.random.split(jax.random.key(0))]


@pytest.mark.parametrize("key", NO_KEYS, **ids)
def test_what_is_no_key_is_refused(key):
    with pytest.raises(TradeError, match=r"^key must be a JAX random key such as jax\.random\.key\(0\), got "):
        check.random_key(key)


def test_words_functions_and_members():
    check.choice("a", "kind", "a", "b")
    check.function(len, "f")
    check.member([], "list", "a list", "append", "pop")
    refused = {
        "kind must be 'a' or 'b', got 'c'": lambda: check.choice("c", "kind", "a", "b"),
        "kind must be 'a' or 'b', got an array": lambda: check.choice(np.zeros(2), "kind", "a", "b"),
        r"f must be a function of \(x, c\), got 3": lambda: check.function(3, "f", "(x, c)"),
        "norm must be a norm, got <class 'list'>": lambda: check.member(list, "norm", "a norm", "append"),
        "norm must be a norm, got 1.0": lambda: check.member(1.0, "norm", "a norm", "append"),
    }
    for message, call in refused.items():
        with pytest.raises(TradeError, match=message) as error:
            call()
        sentence(error)


def test_a_function_that_fails_is_named_and_its_error_kept():
    with pytest.raises(TradeError, match=r"^sampler failed: division by zero\.$") as error:
        check.called("sampler", lambda: 1 / 0)
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    with pytest.raises(TradeError, match=r"^f must be a function, got 0\.$"):  # a sentence stays what it is
        check.called("sampler", lambda: check.function(0, "f"))


# Arrays


@settings(max_examples=50)
@given(
    st.sampled_from([*INTEGERS, *FLOATS]).flatmap(
        lambda d: arrays.arrays(d, arrays.array_shapes(max_dims=3, max_side=4))
    )
)
def test_arrays_of_all_real_types_are_taken_as_they_are(value):
    for form in (value, value.tolist()):
        np.testing.assert_array_equal(np.asarray(check.array(form, "x"), float), np.asarray(value, float))
    assert check.array(value, "x", value.shape).shape == value.shape
    assert check.array(value, "x", (-1, *value.shape[1:])).shape == value.shape
    with pytest.raises(TradeError, match="x must have shape"):
        check.array(value, "x", (*value.shape, 1))


def test_arrays_of_small_floats_and_of_jax_are_taken():
    for value in (jnp.ones(3, jnp.bfloat16), jnp.ones(3, jnp.float16), np.ones(3, jnp.bfloat16), jnp.arange(3)):
        assert check.array(value, "x", (3,), finite=True).shape == (3,)


@pytest.mark.parametrize(
    "value",
    ["1.0", ["1.0"], None, [None], [[1], [2, 3]], 1j, [1j], [True], np.array([1, "a"], object), {}, Ellipsis],
    **ids,
)
def test_what_is_no_array_of_real_numbers_is_refused(value):
    with pytest.raises(TradeError, match=r"x must be an array of (real )?numbers, got ") as error:
        check.array(value, "x")
    sentence(error)


def test_numbers_that_are_not_finite_are_refused_where_asked():
    for value in ([1.0, np.nan], jnp.array([jnp.inf])):
        check.array(value, "x")
        with pytest.raises(TradeError, match="x must be finite"):
            check.array(value, "x", finite=True)


def test_how_many_states():
    assert check.count(np.int64(5), (2, 3)) == 5
    for n in (0, 10**12, 2**31):
        with pytest.raises(TradeError, match=r"n must be|draw them in parts"):
            check.count(n, (2,))


@given(st.text() | st.lists(st.integers()) | st.binary())
def test_values_are_shown_on_one_short_line(value):
    text = check.shown(value)
    assert len(text) <= 80 and len(text.splitlines()) <= 1


@given(st.text())
def test_reasons_are_one_short_line(text):
    found = check.reason(ValueError(text))
    assert 0 < len(found) <= 120 and len(found.splitlines()) == 1
