"""Older versions of the protocol, as clients and servers that were built from them speak it.

`older/NAME.binpb` is what the generated code of an older Headrace described (a FileDescriptorSet). Messages made from
it know no later field: a caller that uses them is an older client, and a relay that reads and writes all that passes
through them is an older server.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from headrace.proto.errors import from_rpc

FOLDER = Path(__file__).resolve().parent / "older"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.binpb")))


class Protocol:
    """The services of one version. `files` are their descriptions, `methods` those of all services by name."""

    def __init__(self, name: str) -> None:
        described = FileDescriptorSet.FromString((FOLDER / f"{name}.binpb").read_bytes())
        pool = DescriptorPool()
        for file in described.file:
            pool.Add(file)
        self.files = [pool.FindFileByName(file.name) for file in described.file]
        services = [service for file in self.files for service in file.services_by_name.values()]
        self.methods = {method.name: method for service in services for method in service.methods}

    def reduced(self, method: str, request: bool, data: bytes) -> bytes:
        """A message as this version passes it on: without what it does not know."""
        described = self.methods[method]
        message: Any = GetMessageClass(described.input_type if request else described.output_type).FromString(data)
        message.DiscardUnknownFields()
        return bytes(message.SerializeToString())


class OlderClient:
    """Calls by name in the messages of an older version, one try each."""

    def __init__(self, protocol: Protocol, address: str) -> None:
        self._protocol = protocol
        self._address = address
        self._channel = grpc.insecure_channel(address)

    def __enter__(self) -> OlderClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()

    def __call__(self, method: str, **fields: Any) -> Any:
        path, request, answer = self._of(method)
        call = self._channel.unary_unary(path, request.SerializeToString, answer.FromString)
        try:
            return call(request(**fields), timeout=20)
        except grpc.RpcError as error:
            raise from_rpc(error, doing=method, endpoint=self._address) from None

    def stream(self, method: str, **fields: Any) -> Any:
        """The answers to one request of a stream."""
        path, request, answer = self._of(method)
        call = self._channel.stream_stream(path, request.SerializeToString, answer.FromString)
        return call(iter([request(**fields)]), timeout=20)

    def _of(self, method: str) -> tuple[str, Any, Any]:
        described = self._protocol.methods[method]
        path = f"/{described.containing_service.full_name}/{method}"
        return path, GetMessageClass(described.input_type), GetMessageClass(described.output_type)


Change = Callable[[str, bool, bytes], bytes]
"""What becomes of a message: name of the call, whether it is the request, its bytes."""


@contextlib.contextmanager
def relay(address: str, known: Callable[[str], bool], change: Change) -> Iterator[str]:
    """A server that passes calls on to `address`, each message as `change` makes it; refuses calls it does not know."""
    channel = grpc.insecure_channel(address, options=(("grpc.max_receive_message_length", 64 << 20),))
    # The client asks whether a server on its own host is there more often than gRPC thinks right.
    options = (("grpc.http2.min_ping_interval_without_data_ms", 10), ("grpc.http2.max_ping_strikes", 0))

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> Any:
            name = details.method.rsplit("/", 1)[1]
            if not known(name):
                return None
            forward = channel.stream_stream(details.method)

            def answer(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
                call: Any = forward(change(name, True, request) for request in requests)
                context.add_callback(call.cancel)
                try:
                    for message in call:
                        yield change(name, False, message)
                except grpc.RpcError as error:
                    failed: Any = error
                    context.set_trailing_metadata(failed.trailing_metadata() or ())
                    context.abort(failed.code(), failed.details())

            return grpc.stream_stream_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(16), handlers=(Handler(),), options=options)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()
        channel.close()
