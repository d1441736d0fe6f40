"""Our services as gRPC handlers, made from their descriptors.

As the generated code does it, but typed, and with one difference: a method named in `raw` answers with bytes that are
encoded already, so that a batch is not serialised once more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import grpc
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

_KINDS: dict[tuple[bool, bool], Any] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def service_of(file: FileDescriptor, name: str) -> ServiceDescriptor:
    """The service of this name in a file."""
    found: ServiceDescriptor = file.services_by_name[name]
    return found


def handlers(service: ServiceDescriptor, servicer: object, *, raw: Collection[str] = ()) -> grpc.GenericRpcHandler:
    """The handlers to add to a server; `servicer` has a coroutine for each method."""
    methods = {
        method.name: _handler(method, getattr(servicer, method.name), is_raw=method.name in raw)
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _handler(method: MethodDescriptor, call: Any, *, is_raw: bool) -> grpc.RpcMethodHandler[Any, Any]:
    request: Any = GetMessageClass(method.input_type)
    response: Any = GetMessageClass(method.output_type)
    make = _KINDS[method.client_streaming, method.server_streaming]
    kinds = {
        "request_deserializer": request.FromString,
        "response_serializer": None if is_raw else response.SerializeToString,
    }
    made: grpc.RpcMethodHandler[Any, Any] = make(call, **kinds)
    return made
