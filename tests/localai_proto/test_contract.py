# SPDX-License-Identifier: MIT
"""The generated stubs carry exactly LocalAI's contract: every rpc, field, type, enum value and reserved number."""

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto

from localai_proto import backend_pb2, backend_pb2_grpc
from tests.localai_proto.contract_table import ENUMS, MESSAGES, RESERVED, RPCS

FILE = backend_pb2.DESCRIPTOR
SERVICE = FILE.services_by_name["Backend"]
SCALARS = {
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def lines(table: str) -> list[str]:
    return [" ".join(line.split()) for line in table.splitlines() if line.strip()]


def type_name(field: FieldDescriptor) -> str:
    """The field's type as a .proto spells it, the label included."""
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (message.fields_by_name[name] for name in ("key", "value"))
        return f"map<{type_name(key)},{type_name(value)}>"
    named = message or field.enum_type
    name = named.name if named is not None else SCALARS[field.type]
    return f"repeated {name}" if field.is_repeated else name


def proto_of(message: Descriptor) -> DescriptorProto:
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return proto


def enums() -> dict[str, EnumDescriptor]:
    nested = {f"{m.name}.{e.name}": e for m in FILE.message_types_by_name.values() for e in m.enum_types}
    return {**FILE.enum_types_by_name, **nested}


def rpc_types() -> set[str]:
    return {message.name for method in SERVICE.methods for message in (method.input_type, method.output_type)}


def test_package_and_service() -> None:
    assert FILE.package == "backend"
    assert list(FILE.services_by_name) == ["Backend"]


def test_rpcs_are_the_table() -> None:
    def line(client_streams: bool, request: str, server_streams: bool, response: str) -> str:
        return f"{'stream ' if client_streams else ''}{request} {'stream ' if server_streams else ''}{response}"

    methods = [
        f"{m.name} {line(m.client_streaming, m.input_type.name, m.server_streaming, m.output_type.name)}"
        for m in SERVICE.methods
    ]
    assert sorted(methods) == sorted(lines(RPCS))


def test_servicer_has_every_rpc() -> None:
    names = {line.split()[0] for line in lines(RPCS)}
    assert {name for name in vars(backend_pb2_grpc.BackendServicer) if not name.startswith("_")} == names


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_the_table(name: str) -> None:
    fields = [f"{f.number} {f.name} {type_name(f)}" for f in FILE.message_types_by_name[name].fields]
    assert sorted(fields) == sorted(lines(MESSAGES[name]))


def test_no_field_has_presence_or_a_oneof() -> None:
    """The contract has none: an unset scalar and its zero are the same on the wire."""
    for message in FILE.message_types_by_name.values():
        assert not message.oneofs, message.name
        assert not [f.name for f in message.fields if f.has_presence and f.message_type is None], message.name


def test_messages_outside_the_table_are_empty_and_used_by_an_rpc() -> None:
    others = {name: m for name, m in FILE.message_types_by_name.items() if name not in MESSAGES}
    assert not [name for name, message in others.items() if message.fields]
    assert set(others) <= rpc_types()


def test_reserved_numbers_are_the_table() -> None:
    reserved = {
        name: [n for span in proto_of(message).reserved_range for n in range(span.start, span.end)]
        for name, message in FILE.message_types_by_name.items()
    }
    assert {name: numbers for name, numbers in reserved.items() if numbers} == RESERVED


def test_enums_are_the_table() -> None:
    assert {name: {v.name: v.number for v in enum.values} for name, enum in enums().items()} == ENUMS
