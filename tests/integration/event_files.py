"""Reads TensorBoard's event files with a CRC-32C and message types of its own, written from the formats' descriptions
(TFRecord; event.proto, summary.proto and tensor.proto) and not from the program's code."""

import struct

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

F = descriptor_pb2.FieldDescriptorProto
TYPES = {"double": F.TYPE_DOUBLE, "float": F.TYPE_FLOAT, "int64": F.TYPE_INT64, "int32": F.TYPE_INT32,
         "string": F.TYPE_STRING, "bytes": F.TYPE_BYTES}
MESSAGES = {
    "Shape": [],
    "Tensor": [("dtype", 1, "int32"), ("tensor_shape", 2, "Shape"), ("string_val", 8, "*bytes")],
    "Plugin": [("plugin_name", 1, "string"), ("content", 2, "bytes")],
    "Metadata": [("plugin_data", 1, "Plugin"), ("data_class", 4, "int32")],
    "Value": [("tag", 1, "string"), ("simple_value", 2, "float"), ("tensor", 8, "Tensor"),
              ("metadata", 9, "Metadata")],
    "Summary": [("value", 1, "*Value")],
    "Event": [("wall_time", 1, "double"), ("step", 2, "int64"), ("file_version", 3, "string"),
              ("summary", 5, "Summary")],
}


def _make_event():
    file = descriptor_pb2.FileDescriptorProto(name="event_files.proto", package="board", syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            scalar = TYPES.get(kind.strip("*"))
            message.field.add(name=field, number=number,
                              label=F.LABEL_REPEATED if kind.startswith("*") else F.LABEL_OPTIONAL,
                              type=scalar or F.TYPE_MESSAGE,
                              type_name=None if scalar else f".board.{kind.strip('*')}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName("board.Event"))


Event = _make_event()
TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    TABLE.append(number)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # RFC 3720


def _masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_events(path):
    """Returns the events of a file, all of whose checksums must be right; raises ValueError otherwise."""
    data, at, events = path.read_bytes(), 0, []
    while at < len(data):
        length, of_length = struct.unpack_from("<QI", data, at)
        payload = data[at + 12:at + 12 + length]
        if len(payload) != length or of_length != _masked(data[at:at + 8]):
            raise ValueError(f"record at byte {at}")
        if struct.unpack_from("<I", data, at + 12 + length) != (_masked(payload),):
            raise ValueError(f"payload at byte {at}")
        event = Event.FromString(payload)
        if event.UnknownFields():
            raise ValueError(f"unknown fields at byte {at}")
        events.append(event)
        at += 16 + length
    return events


def scalars(events):
    """Returns {tag: {step: value}}; a step must not give a tag twice."""
    found = {}
    for event in events:
        for value in event.summary.value:
            if value.HasField("simple_value"):
                steps = found.setdefault(value.tag, {})
                if event.step in steps:
                    raise ValueError(f"{value.tag} has step {event.step} twice")
                steps[event.step] = value.simple_value
    return found
