"""What cannot be built is refused before anything is made, in one line that helps."""

import re

import pytest

from circuits.errors import InputError
from mechinterp.config import MarginalsConfig
from mechinterp.tasks.marginals import Marginals
from mechinterp.tasks.marginals_table import marginals_table

REFUSED = [
    (
        {"k": 37},
        "k=37 with distinct_prefix=1: only 36 prefixes differ; use k <= 36 or "
        "set distinct_prefix to 2 (k up to 1296), or to 0 for no rule",
    ),
    (
        {"k": 1297, "n_b": 2, "distinct_prefix": 2},
        "k=1297 with distinct_prefix=2: only 1296 prefixes differ; use k <= 1296 or "
        "set distinct_prefix to 0 for no rule",
    ),
    (
        {"k": 20, "n_b": 83981},
        "k=20 with n_b=83981 needs 1679620 different answers, but only 1679616 strings of "
        "4 characters exist: use n_b <= 83980",
    ),
    (
        {"z_sharing": "private"},
        "z_sharing='private' with k=20 and n_b=1000 needs 20000 selectors, but only 1296 have "
        "z_length=2: use z_length >= 3 or fewer selectors",
    ),
    (
        {"k": 5, "z_sharing": "supergroup", "supergroups": 260},
        "z_sharing='supergroup' with k=5 and n_b=1000 needs 1300 selectors, but only 1296 have "
        "z_length=2: use z_length >= 3 or fewer selectors",
    ),
    ({"k": 0}, "k=0 is out of range: choose k from 1 to 1679616"),
    ({"n_b": 0}, "n_b=0 is out of range: choose n_b from 1 to 1679616"),
    ({"n_b": -3}, "n_b=-3 is out of range: choose n_b from 1 to 1679616"),
    (
        {"z_sharing": "supergroup", "supergroups": 1001},
        "supergroups=1001 is out of range: choose supergroups from 1 to 1000",
    ),
    (
        {"supergroups": 4},
        "supergroups=4 has no effect with z_sharing='shared': use z_sharing='supergroup' or "
        "supergroups=1",
    ),
    ({"z_length": 0}, "z_length=0 is out of range: choose z_length from 1 to 6"),
    ({"distinct_prefix": 3}, "distinct_prefix=3 is out of range: choose distinct_prefix from 0"),
    ({"random_z_until": -1}, "random_z_until=-1 is out of range: choose random_z_until from 0"),
    ({"mapping_seed": -1}, "mapping_seed=-1 is out of range: choose mapping_seed from 0"),
    ({"label_noise": 1.5}, "label_noise=1.5 is not a probability: choose one from 0 to 1"),
    ({"label_noise": -0.1}, "label_noise=-0.1 is not a probability: choose one from 0 to 1"),
    ({"label_noise": float("nan")}, "label_noise=nan is not a probability"),
    (
        {"label_noise": 0.1, "k": 1},
        "label_noise=0.1 with k=1: a noisy answer is another one of the fibre; use k >= 2 or "
        "label_noise=0",
    ),
    (
        {"label_noise": 0.1, "variant": "a_to_b"},
        "label_noise=0.1 with variant='a_to_b': only bz_to_a has a wrong answer in its fibre; "
        "use variant='bz_to_a' or label_noise=0",
    ),
    (
        {"random_z_until": 10, "variant": "b_to_a"},
        "random_z_until=10 with variant='b_to_a', which shows no selector: use bz_to_a or "
        "az_to_b, or random_z_until=0",
    ),
]


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_refusals_say_what_is_allowed(changes, message):
    made = marginals_table.cache_info().misses
    with pytest.raises(InputError) as refusal:
        Marginals(MarginalsConfig(**changes))
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)
    assert marginals_table.cache_info().misses == made


@pytest.mark.parametrize(
    ("field", "given", "message"),
    [
        (
            "variant",
            "bz_to_b",
            "variant='bz_to_b' is not one of bz_to_a, az_to_b, b_to_a, a_to_b: try bz_to_a",
        ),
        ("z_sharing", "shard", "z_sharing='shard' is not one of shared, private, supergroup: try"),
    ],
)
def test_mistyped_names_are_refused(field, given, message):
    config = MarginalsConfig()
    # Types are enforced while testing; a configuration from JSON can hold any string.
    object.__setattr__(config, field, given)
    with pytest.raises(InputError, match=re.escape(message)):
        Marginals(config)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"k": 1, "n_b": 20000},
        {"k": 36, "n_b": 46656},
        {"k": 1296, "n_b": 1296, "distinct_prefix": 2},
        {"k": 1296, "n_b": 2, "distinct_prefix": 0},
        {"z_sharing": "private", "z_length": 3},
        {"label_noise": 1.0},
        {"random_z_until": 10, "variant": "az_to_b"},
    ],
)
def test_the_largest_allowed_values_are_accepted(changes):
    config = MarginalsConfig(**changes)
    assert Marginals(config).config == config
