"""`headrace doctor` against a server that is well, one that is away, and one that misses parts."""

from __future__ import annotations

import importlib.metadata
import json

import grpc
import pytest
from click.testing import CliRunner, Result
from headrace.client.cli import doctor as module
from headrace.client.cli.main import main
from headrace.proto.errors import HeadraceError, UsageError
from headrace.proto.v1 import control_pb2, control_pb2_grpc
from toy_server import ToyServer

CONTROL = "headrace.v1.ControlService"
HEALTH = "grpc.health.v1.Health"


class Listing(control_pb2_grpc.ControlServiceServicer):
    """Names the toy's run."""

    def ListRuns(self, request: object, context: object) -> control_pb2.ListRunsResponse:  # noqa: N802
        return control_pb2.ListRunsResponse(runs=[control_pb2.RunInfo(name="toy")])


def health(status: int) -> grpc.GenericRpcHandler:
    answer = grpc.unary_unary_rpc_method_handler(lambda request, context: bytes([8, status]))
    return grpc.method_handlers_generic_handler(HEALTH, {"Check": answer})


def well(server: ToyServer, *, status: int = 1) -> None:
    server.server.add_generic_rpc_handlers((health(status),))
    control_pb2_grpc.add_ControlServiceServicer_to_server(Listing(), server.server)


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--json", *arguments])


def statuses(result: Result) -> dict[str, str]:
    return {check["name"]: check["status"] for check in json.loads(result.stdout)["checks"]}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADRACE_SERVER", "HEADRACE_STORE", *module._PROXIES, *map(str.upper, module._PROXIES)):
        monkeypatch.delenv(name, raising=False)


def test_a_machine_alone() -> None:
    result = doctor()
    assert result.exception is None
    assert statuses(result)["native"] == "ok"
    assert statuses(result)["server"] == "ok"


def test_a_server_that_is_well() -> None:
    with ToyServer(setup=well) as server:
        server.service.confirmed = 1
        result = doctor("--server", server.address)
        assert result.exception is None, result.output
        assert statuses(result)["run toy"] == "ok"
        assert "rows arrive whole" in result.stdout
        assert "8 x 16 tokens a step" in result.stdout
        assert server.service.job is None
        missing = doctor("--server", server.address, "other")
    assert isinstance(missing.exception, HeadraceError)
    found = json.loads(missing.stdout)["checks"][-1]
    assert (found["name"], found["status"], found["remedy"]) == ("run other", "fail", "known runs: toy")


def test_a_server_of_another_version_is_named() -> None:
    with ToyServer(setup=well) as server:
        found = {check["name"]: check for check in json.loads(doctor("--server", server.address).stdout)["checks"]}
    assert found["version"]["status"] == "warn"
    assert "the server is toy, this client" in found["version"]["found"]
    assert module.version(importlib.metadata.version("headrace")).status == "ok"


def test_every_way_to_write_an_address() -> None:
    with ToyServer(setup=well) as server:
        for address in (server.address, f"dns:///{server.address}", f"ipv4:{server.address}"):
            assert statuses(doctor("--server", address))["run toy"] == "ok"
    with ToyServer(host="[::1]", setup=well) as server:
        for address in (server.address, f"ipv6:{server.address}"):
            assert statuses(doctor("--server", address))["run toy"] == "ok"
        bare = doctor("--server", server.address.replace("[", "").replace("]", ""))
    assert "in brackets" in str(bare.exception)


@pytest.mark.parametrize(("ahead", "status"), [(0.0, "ok"), (90.0, "warn"), (-90.0, "warn"), (None, "ok")])
def test_clocks_that_differ_are_named(ahead: float | None, status: str) -> None:
    with ToyServer(setup=well) as server:
        server.faults.clock = ahead
        result = doctor("--server", server.address)
    assert result.exception is None
    assert statuses(result)["clock"] == status
    assert ("90." in result.stdout) == (status == "warn")


def test_corrupt_rows_fail_the_run() -> None:
    with ToyServer(setup=well) as server:
        server.faults.corrupt = 99
        result = doctor("--server", server.address)
    assert statuses(result)["run toy"] == "fail"
    assert "changed on the way" in result.stdout


def test_what_fails_first_ends_the_checks() -> None:
    with ToyServer() as gone:
        address = gone.address
    assert statuses(doctor("--server", address))["address"] == "fail"
    assert isinstance(doctor("--server", "no-port").exception, UsageError)
    with ToyServer() as bare:
        found = statuses(doctor("--server", bare.address))
    assert (found["address"], found["service"]) == ("ok", "fail")
    with ToyServer(setup=lambda server: well(server, status=2)) as resting:
        result = doctor("--server", resting.address)
    assert statuses(result)["service"] == "fail"
    assert "not serving" in result.stdout


def test_proxy_and_fork_settings_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert module.proxy("data.cluster:7750").status == "warn"
    monkeypatch.setenv("no_proxy", "localhost, .cluster")
    assert module.proxy("data.cluster:7750").status == "ok"
    monkeypatch.setenv("GRPC_ENABLE_FORK_SUPPORT", "false")
    assert module.fork().status == "warn"
