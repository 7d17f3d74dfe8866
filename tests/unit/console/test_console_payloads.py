"""Bytes as people see them."""

import base64

import pytest
from punctual_worker.console import payloads


@pytest.mark.parametrize(
    ("raw", "encoding", "text"),
    [
        (None, "null", None),
        (b"", "text", ""),
        (b"hello", "text", "hello"),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"{broken", "text", "{broken"),
        (b"[NaN]", "text", "[NaN]"),
        (b"\xff\x00", "base64", "/wA="),
        (b"a\x00b", "base64", "YQBi"),
        (b"[" * 100_000, "text", "[" * 100_000),
        ("grün\n".encode(), "text", "grün\n"),
    ],
)
def test_text_where_it_is_text(raw: bytes | None, encoding: str, text: str | None) -> None:
    shown = payloads.show(raw, limit=1_000_000)
    assert (shown.encoding, shown.text) == (encoding, text)


def test_the_limit_may_fall_inside_a_character() -> None:
    shown = payloads.show("ä".encode() * 10, limit=5)
    assert (shown.encoding, shown.text, shown.size, shown.truncated) == ("text", "ää", 20, True)


def test_a_cut_document_is_no_document_any_more() -> None:
    assert payloads.show(b'{"a": 1234567}', limit=8).encoding == "text"


def test_hidden_payloads_tell_their_size_only() -> None:
    assert payloads.show(b"secret", limit=100, hidden=True) == ("hidden", None, 6, False)


@pytest.mark.parametrize("raw", [b"", b"x", b"\xff\xfe", "ü".encode()])
def test_base64_comes_back_as_it_went(raw: bytes) -> None:
    assert payloads.to_bytes(base64.b64encode(raw).decode(), "base64", what="value") == raw


@pytest.mark.parametrize("value", ["not base64!", 17])
def test_what_is_not_base64_is_refused(value: object) -> None:
    with pytest.raises(payloads.PayloadError, match="value"):
        payloads.to_bytes(value, "base64", what="value")


def test_anything_but_text_is_json() -> None:
    assert payloads.to_bytes({"ä": [1, None]}, "text", what="value") == '{"ä": [1, null]}'.encode()
