"""A path to a server far away: a proxy on this machine that holds back every byte for a while, both ways."""

from __future__ import annotations

import queue
import socket
import threading
import time


class Far:
    """`address` leads to `target`, `one_way` seconds late in each direction; order and content are kept."""

    def __init__(self, target: str, one_way: float) -> None:
        host, _, port = target.rpartition(":")
        self._target, self._one_way = (host, int(port)), one_way
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            far = socket.create_connection(self._target)
            for source, sink in ((near, far), (far, near)):
                late: queue.Queue[tuple[float, bytes]] = queue.Queue()
                threading.Thread(target=self._take, args=(source, late), daemon=True).start()
                threading.Thread(target=self._give, args=(late, sink), daemon=True).start()

    def _take(self, source: socket.socket, late: queue.Queue[tuple[float, bytes]]) -> None:
        data = b"?"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            late.put((time.monotonic() + self._one_way, data))

    def _give(self, late: queue.Queue[tuple[float, bytes]], sink: socket.socket) -> None:
        while True:
            due, data = late.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
            except OSError:
                return

    def __enter__(self) -> Far:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()
