"""The catalogue fits the sources and the tests; in the soak, every mutation is caught."""

import collections

import pytest

from .catalogue import MUTATIONS, Mutation
from .run import ROOT, Verdict, mutate, try_mutation

HARDWARE = ROOT / "hw" / "sluice_hw"


def test_catalogue_fits_the_sources() -> None:
    assert len(MUTATIONS) >= 40
    repeated = collections.Counter((m.file, m.name) for m in MUTATIONS)
    assert max(repeated.values()) == 1, repeated.most_common(1)
    for mutation in MUTATIONS:
        text = (HARDWARE / mutation.file).read_text()
        assert mutate(mutation, text) != text, mutation
        compile(mutate(mutation, text), mutation.file, "exec")


def test_catchers_exist() -> None:
    """Each names a test function; the parameters in brackets are checked by running it."""
    for catcher in {m.catcher for m in MUTATIONS}:
        path, _, name = catcher.partition("::")
        text = (ROOT / "verif" / path).read_text()
        assert f"def {name.partition('[')[0]}(" in text, catcher


def test_text_that_does_not_fit() -> None:
    mutation = Mutation("x", "pe.py", "nowhere", "there", "unit/test_pe.py::test_pe")
    with pytest.raises(ValueError, match="'nowhere' must stand once in pe.py, not 0 times"):
        mutate(mutation, "some text")


@pytest.mark.soak
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.file}: {m.name}")
def test_caught(mutation: Mutation) -> None:
    outcome = try_mutation(mutation)
    assert outcome.verdict is Verdict.CAUGHT, f"{outcome.verdict.value}: {mutation.catcher}, log {outcome.log}"
