"""Payloads survive being stored, or are refused with the place and the remedy."""

from __future__ import annotations

import dataclasses
import enum
import json
import subprocess
import sys
import zoneinfo
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stacksaga_flask.errors import DefinitionError, PayloadError, PayloadTooLarge
from stacksaga_flask.saga.payload import PayloadCodec, canonical_hash, payload_codec
from stacksaga_flask.saga.payload_dict import untagged

pytestmark = pytest.mark.varies_by_python

T = TypeVar("T")
ID = UUID("12345678-1234-5678-1234-567812345678")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass(frozen=True)
class Line:
    sku: str
    price: Decimal
    color: Color | None = None


@dataclasses.dataclass
class Everything:
    number: int
    big: int
    share: float
    price: Decimal
    moment: datetime
    day: date
    hour: time
    span: timedelta
    id: UUID
    color: Color
    size: Size
    raw: bytes
    names: set[str]
    colors: frozenset[Color]
    pair: tuple[int, str]
    many: tuple[Decimal, ...]
    lines: list[Line]
    by_color: dict[Color, Line]
    by_number: dict[int, Decimal]
    point: Point
    maybe: UUID | None = None
    _private: str = "kept"


class Order(msgspec.Struct):
    id: UUID
    total: Decimal = Decimal(0)
    share: float | None = None
    note: str = ""


@dataclasses.dataclass
class Identified:
    id: int
    share: float | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identified) and self.id == other.id

    __hash__ = None  # type: ignore[assignment]


@dataclasses.dataclass(eq=False)
class NotComparable:
    id: int
    line: Line


class Paid(TypedDict):
    id: UUID
    total: Decimal


class Cart(Paid, total=False):
    note: str


class Tree(msgspec.Struct):
    name: str
    branches: list[Tree] = []


class Box(msgspec.Struct, Generic[T]):
    content: T


class Labels(msgspec.Struct, tag=True):
    labels: set[str]


class Numbers(msgspec.Struct, tag=True, array_like=True):
    sorted: list[int]
    numbers: set[int]


class Nothing(msgspec.Struct, tag=True, array_like=True):
    numbers: list[int]


@dataclasses.dataclass
class Deep:
    parts: list[Labels | None]
    pair: tuple[int, frozenset[str]]
    named: dict[str, set[str]]
    either: Nothing | Numbers


def everything() -> Everything:
    return Everything(
        number=-1,
        big=2**80,
        share=0.1,
        price=Decimal("10.00"),
        moment=datetime(2024, 2, 29, 23, 59, 59, 999_999, timezone(timedelta(hours=5, minutes=30))),
        day=date(2024, 12, 31),
        hour=time(1, 2, 3, 4),
        span=timedelta(days=-1, microseconds=1),
        id=ID,
        color=Color.BLUE,
        size=Size.SMALL,
        raw=bytes(range(256)),
        names={"b", "a"},
        colors=frozenset(Color),
        pair=(1, "x"),
        many=(Decimal("1.0"), Decimal("1.00")),
        lines=[Line("tea", Decimal("3.10"), Color.RED)],
        by_color={Color.RED: Line("tea", Decimal(3))},
        by_number={7: Decimal("0.1")},
        point=Point(1, 2),
        maybe=ID,
        _private="changed",
    )


# -- typed payloads --------------------------------------------------------------------------------------------


def test_everything_that_is_promised_survives() -> None:
    codec = payload_codec(Everything)
    again = codec.decode(codec.encode(everything()), 1)
    assert again == everything()
    assert str(again.many) == str(everything().many)
    assert again.moment.isoformat() == "2024-02-29T23:59:59.999999+05:30"


@pytest.mark.parametrize(
    ("payload_type", "value"),
    [
        (Order, Order(ID, Decimal("1.10"), 0.5)),
        (Cart, Cart(id=ID, total=Decimal("1.10"))),
        (Cart, Cart(id=ID, total=Decimal("1.10"), note="x")),
        (Tree, Tree("a", [Tree("b", [Tree("c")])])),
        (Box[Decimal], Box(Decimal("1.0"))),
        (Identified, Identified(1, 0.5)),
        (dict[str, Decimal], {"tea": Decimal("3.10")}),
        (Order, Order(ID, Decimal("NaN"))),
    ],
)
def test_a_payload_may_be_of_each_of_these_types(payload_type: Any, value: Any) -> None:
    codec = payload_codec(payload_type)
    again = codec.decode(codec.encode(value), 1)
    assert type(again) is type(value)
    assert repr(again) == repr(value)


def test_a_payload_that_defines_no_equality_survives() -> None:
    codec = payload_codec(NotComparable)
    again = codec.decode(codec.encode(NotComparable(1, Line("tea", Decimal(3)))), 1)
    assert (again.id, again.line) == (1, Line("tea", Decimal(3)))


def test_nothing_stored_names_a_module_or_a_class() -> None:
    stored = payload_codec(Everything).encode(everything()).decode()
    for name in (__name__, "Everything", "Line", "Color", "Point", "Decimal"):
        assert name not in stored


def test_an_int_in_a_float_field_is_stored_as_the_float_it_will_be() -> None:
    codec = payload_codec(Order)
    assert codec.encode(Order(ID, share=5)) == codec.encode(Order(ID, share=5.0))


def test_a_time_that_a_clock_change_makes_ambiguous_survives() -> None:
    moment = datetime(2024, 11, 3, 1, 30, tzinfo=zoneinfo.ZoneInfo("America/New_York"))
    codec = payload_codec(Box[datetime])
    assert codec.decode(codec.encode(Box(moment)), 1).content.isoformat() == "2024-11-03T01:30:00-04:00"


def test_sets_are_stored_in_one_order_in_every_process() -> None:
    code = (
        "from tests.unit.test_payload import *\n"
        "labels = Labels({'d', 'a', 'c', 'b'})\n"
        "either = Numbers([3, 1, 2], {30, 4, 100})\n"
        "value = Deep([labels, None], (1, frozenset('dacb')), {'z': set('dacb'), 'y': set()}, either)\n"
        "print(payload_codec(Deep).encode(value).decode())"
    )
    stored = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, text=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert [json.loads(text) for text in stored] == [
        {
            "parts": [{"type": "Labels", "labels": ["a", "b", "c", "d"]}, None],
            "pair": [1, ["a", "b", "c", "d"]],
            "named": {"z": ["a", "b", "c", "d"], "y": []},
            "either": ["Numbers", [3, 1, 2], [100, 30, 4]],
        }
    ]


@pytest.mark.parametrize(
    ("payload_type", "value", "place"),
    [
        (Order, Order(ID, share=float("nan")), "Order.share"),
        (Order, Order(ID, share=float("inf")), "Order.share"),
        (Order, Order(str(ID)), "Order.id"),  # type: ignore[arg-type]
        (Order, Order(ID, "1.0"), "Order.total"),  # type: ignore[arg-type]
        (Order, Order(ID, 0.1), "Order.total"),  # type: ignore[arg-type]
        (Order, Order(ID, note=3), "$.note"),  # type: ignore[arg-type]
        (Order, Order(ID, note=object()), "object"),  # type: ignore[arg-type]
        (Order, Order(ID, note="\ud800"), "surrogates"),
        (Identified, Identified(1, float("nan")), "Identified.share"),
        (NotComparable, NotComparable(1, Line("x", "1.0")), "NotComparable.line.price"),  # type: ignore[arg-type]
        (Box[list[Line]], Box([Line("x", "1.0")]), "[0].price"),  # type: ignore[arg-type]
        (Box[float], Box(float("nan")), "NaN and infinity"),
        (Box[tuple[int, ...]], Box([1]), ".content"),
        (Box[dict[str, Decimal]], Box({"a": "1"}), ".content['a']"),
        (Box[datetime], Box(datetime(2024, 1, 1, tzinfo=timezone(timedelta(seconds=1)))), ".content"),
        (Box[Color], Box("red"), ".content"),
        (Cart, {"id": ID, "total": Decimal(1), "extra": 1}, "Cart"),
        (Cart, {"id": ID}, "total"),
    ],
)
def test_a_value_that_would_not_read_back_is_refused_with_its_place(payload_type: Any, value: Any, place: str) -> None:
    with pytest.raises(PayloadError) as refused:
        payload_codec(payload_type).encode(value)
    assert place in str(refused.value)


def test_a_signaling_nan_is_compared_without_an_exception() -> None:
    codec = payload_codec(Order)
    assert str(codec.decode(codec.encode(Order(ID, Decimal("sNaN"))), 1).total) == "sNaN"


@pytest.mark.parametrize("value", [None, "done", {"id": 1}, 3])
def test_what_is_no_payload_is_refused(value: Any) -> None:
    with pytest.raises(PayloadError, match="a step must return its payload or None"):
        payload_codec(Order).encode(value)


def test_a_payload_over_the_limit_is_refused() -> None:
    codec = payload_codec(Order)
    size = len(codec.encode(Order(ID)))
    assert codec.encode(Order(ID), limit=size)
    with pytest.raises(PayloadTooLarge) as refused:
        codec.encode(Order(ID), limit=size - 1)
    assert (refused.value.size, refused.value.limit) == (size, size - 1)
    with pytest.raises(PayloadTooLarge):
        codec.encode(Order(ID, note="x" * 2**20))


# -- what is refused at declaration ----------------------------------------------------------------------------


class Opaque:
    pass


class Mixed(enum.Enum):
    A = "a"
    B = 1


@dataclasses.dataclass
class HasAny:
    things: list[dict[str, Any]]


@dataclasses.dataclass
class HasOpaque:
    line: tuple[Line, Opaque]


@dataclasses.dataclass
class HasComplex:
    number: complex | None


@dataclasses.dataclass
class HasRaw:
    raw: msgspec.Raw


@dataclasses.dataclass
class HasBareList:
    things: list  # type: ignore[type-arg]


@dataclasses.dataclass
class HasTupleKeys:
    seats: dict[tuple[int, int], str]


@dataclasses.dataclass
class HasAmbiguousKeys:
    seats: dict[int | str, str]


@dataclasses.dataclass
class HasUnion:
    either: str | Decimal


@dataclasses.dataclass
class HasMixedEnum:
    mixed: Mixed


@dataclasses.dataclass
class HasCallable:
    then: Callable[[], None]


@dataclasses.dataclass
class HasInitVar:
    once: dataclasses.InitVar[int]


@dataclasses.dataclass
class HasUnknownName:
    what: Nowhere  # type: ignore[name-defined]  # noqa: F821


class Nested(msgspec.Struct, array_like=True):
    id: int


@pytest.mark.parametrize(
    ("payload_type", "told"),
    [
        (HasAny, "HasAny.things[][] is of type Any"),
        (HasOpaque, "HasOpaque.line[1] is of type Opaque"),
        (HasComplex, "HasComplex.number is of type complex"),
        (HasRaw, "HasRaw.raw is of type Raw"),
        (HasBareList, "HasBareList.things[] is of type Any"),
        (HasTupleKeys, "HasTupleKeys.seats has keys of type Tuple"),
        (HasAmbiguousKeys, "HasAmbiguousKeys.seats has keys of type Union"),
        (HasUnion, "HasUnion"),
        (HasMixedEnum, "HasMixedEnum"),
        (HasCallable, "HasCallable.then is of type Callable"),
        (HasInitVar, "InitVar"),
        (HasUnknownName, "Nowhere"),
        (Nested, "array_like"),
        (Box, "Box.content is of type Any"),
        (Opaque, "a payload is a dataclass"),
        (int, "a payload is a dataclass"),
        (Point, "a payload is a dataclass"),
        (Color, "a payload is a dataclass"),
        (list[int], "a payload is a dataclass"),
        (dict[int, Any], "[] is of type Any"),
    ],
)
def test_a_type_that_would_not_survive_is_refused_when_declared(payload_type: Any, told: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        payload_codec(payload_type)
    assert told in str(refused.value)


def test_payload_versions_count_from_one() -> None:
    with pytest.raises(DefinitionError, match="count from 1"):
        payload_codec(Order, version=0)


# -- plain dicts -----------------------------------------------------------------------------------------------

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.none() | st.just(timezone(timedelta(hours=-3, seconds=7)))).map(
        lambda moment: moment.replace(fold=0)
    )
    | st.dates()
    | st.uuids()
    | st.binary()
)
keys = st.text() | st.sampled_from(["$decimal", "$$decimal", "$", "$uuid", "decimal"])
values = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=6)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(keys, values))
def test_a_plain_dict_reads_back_as_it_was(value: dict[str, Any]) -> None:
    codec = payload_codec(dict[str, Any])
    again = codec.decode(codec.encode(value), 1)
    assert again == value
    assert list(again) == list(value)
    assert repr(again) == repr(value)


def test_the_tags_of_a_plain_dict_are_these() -> None:
    value = {"price": Decimal("1.0"), "day": date(2024, 1, 2), "$uuid": ID, "raw": b"\xff", "n": [1, None]}
    assert json.loads(payload_codec(dict).encode(value)) == {
        "price": {"$decimal": "1.0"},
        "day": {"$date": "2024-01-02"},
        "$$uuid": {"$uuid": str(ID)},
        "raw": {"$bytes": "/w=="},
        "n": [1, None],
    }


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"a": {"b": [0, Color.RED]}}, "payload['a']['b'][1] is a Color"),
        ({"a": (1, 2)}, "payload['a'] is a tuple, which a plain dict cannot store: use a list"),
        ({"a": float("nan")}, "payload['a'] is nan"),
        ({"a": {1: 2}}, "payload['a'] has the key 1"),
        ({"a": {1}}, "payload['a'] is a set"),
        ({"a": Line("x", Decimal(1))}, "declare a typed payload"),
        ({"a": "\ud800"}, "not valid Unicode"),
        ({"a": Size.SMALL}, "payload['a'] is a Size"),
        ({"a": time(1)}, "payload['a'] is a time"),
    ],
)
def test_what_a_plain_dict_cannot_store_is_refused_with_its_path(value: dict[str, Any], told: str) -> None:
    with pytest.raises(PayloadError) as refused:
        payload_codec(dict).encode(value)
    assert told in str(refused.value)


def test_a_dict_that_contains_itself_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(PayloadError, match="contains itself"):
        payload_codec(dict).encode(value)


@pytest.mark.parametrize("data", [b'{"$new": 1}', b'{"a": {"$decimal": "x"}}', b'{"$date": 3}', b'{"$bytes": "!"}'])
def test_damaged_tags_are_told(data: bytes) -> None:
    with pytest.raises(PayloadError, match="damaged"):
        payload_codec(dict).decode(data, 1)


# -- versions --------------------------------------------------------------------------------------------------


def versioned() -> PayloadCodec[Order]:
    codec = payload_codec(Order, version=3)
    codec.upcast(1, lambda old: {**old, "note": old["remark"]})
    codec.upcast(2, lambda old: {"id": old["id"], "total": Decimal(old["cents"]) / 100, "note": old["note"]})
    return codec


def test_an_old_payload_is_brought_up_one_version_after_the_other() -> None:
    codec = versioned()
    stored = json.dumps({"id": str(ID), "cents": 310, "remark": "tea"}).encode()
    assert codec.decode(stored, 1) == Order(ID, Decimal("3.1"), None, "tea")
    stored = json.dumps({"id": str(ID), "cents": 310, "note": "tea"}).encode()
    assert codec.decode(stored, 2) == Order(ID, Decimal("3.1"), None, "tea")


def test_an_upcaster_of_a_plain_dict_gets_what_the_steps_saw() -> None:
    stored = payload_codec(dict).encode({"price": Decimal("1.0")})
    codec = payload_codec(dict, version=2)
    codec.upcast(1, lambda old: {"total": old["price"] * 2})
    assert codec.decode(stored, 1) == {"total": Decimal("2.0")}


def test_a_plain_dict_can_become_a_typed_payload() -> None:
    stored = payload_codec(dict).encode({"id": ID, "price": Decimal("1.0")})
    codec = payload_codec(Order, version=2)

    def upcast(raw: dict[str, Any]) -> dict[str, Any]:
        old = untagged(raw)
        return {"id": old["id"], "total": old["price"]}

    codec.upcast(1, upcast)
    assert codec.decode(stored, 1) == Order(ID, Decimal("1.0"))


@pytest.mark.parametrize("version", [4, 0, -1])
def test_a_version_that_this_release_does_not_know_is_refused(version: int) -> None:
    with pytest.raises(PayloadError, match="this release knows versions 1 to 3 of Order"):
        versioned().decode(b"{}", version)


def test_a_missing_upcaster_is_named() -> None:
    with pytest.raises(PayloadError, match=r"register an upcaster with @saga.upcast\(1\)"):
        payload_codec(Order, version=2).decode(b"{}", 1)


def test_an_upcaster_that_fails_is_told_with_its_version() -> None:
    with pytest.raises(PayloadError, match="version 1 of Order failed with KeyError: 'remark'") as refused:
        versioned().decode(b"{}", 1)
    assert isinstance(refused.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("result", "told"), [(None, "returned NoneType"), ({"id": 3}, "mend the last"), ({"id": object()}, "mend the last")]
)
def test_what_an_upcaster_returns_is_checked(result: Any, told: str) -> None:
    codec = payload_codec(Order, version=2)
    codec.upcast(1, lambda _: result)
    with pytest.raises(PayloadError, match=told):
        codec.decode(b"{}", 1)


@pytest.mark.parametrize("from_version", [0, 3, 4])
def test_an_upcaster_that_could_never_run_is_refused(from_version: int) -> None:
    with pytest.raises(DefinitionError, match="the versions to upcast from are 1 to 2"):
        versioned().upcast(from_version, dict)


def test_two_upcasters_from_one_version_are_refused() -> None:
    with pytest.raises(DefinitionError, match="two upcasters"):
        versioned().upcast(1, dict)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'"\xff"', b"[" * 100_000, b'{"id": 3}'])
@pytest.mark.parametrize("version", [1, 3])
def test_damaged_bytes_are_told(data: bytes, version: int) -> None:
    with pytest.raises(PayloadError):
        versioned().decode(data, version)


# -- the hash of a start (R17) ---------------------------------------------------------------------------------


def test_the_hash_covers_name_and_payload_whatever_the_order_of_keys() -> None:
    one = canonical_hash("order", b'{"a": 1, "b": {"c": 2, "d": 3}}')
    assert one == canonical_hash("order", b'{"b":{"d":3,"c":2},"a":1}')
    assert one != canonical_hash("orders", b'{"a": 1, "b": {"c": 2, "d": 3}}')
    assert one != canonical_hash("order", b'{"a": 1, "b": {"c": 2, "d": 4}}')
    assert canonical_hash("order", b"[1,2]") != canonical_hash("order", b"[2,1]")


def test_the_hash_is_sha256_over_the_name_and_the_sorted_payload() -> None:
    # printf '"order"{"a":1,"b":2}' | sha256sum
    assert canonical_hash("order", b'{"b":2,"a":1}') == (
        "1715491834e03014fb5042ec1c4f5786f9fa94d8134332f0ac63a81b395d6e67"
    )


def test_bytes_that_are_not_json_have_no_hash() -> None:
    with pytest.raises(PayloadError, match="not JSON"):
        canonical_hash("order", b"{")
