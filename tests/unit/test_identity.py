from __future__ import annotations

import os

import pytest
from cassandra.metadata import Murmur3Token

from stacksaga_flask.identity import new_instance_id, token


def test_every_instance_id_is_new_plain_and_names_the_process() -> None:
    ids = {new_instance_id() for _ in range(100)}
    assert len(ids) == 100
    for one in ids:
        assert one.isascii()
        assert f"-{os.getpid()}-" in one


@pytest.mark.parametrize("text", ["", "a", "pod-order-a", "host-1-0123456789ab", "x" * 100])
def test_a_token_is_what_cassandras_driver_computes(text: str) -> None:
    assert token(text) == Murmur3Token.hash_fn(text.encode())


def test_a_token_of_a_text_outside_ascii_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        token("bücher")
