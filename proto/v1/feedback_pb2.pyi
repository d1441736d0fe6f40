from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DomainLoss(_message.Message):
    __slots__ = ("domain", "loss_sum", "tokens", "excess_sum")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUM_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    EXCESS_SUM_FIELD_NUMBER: _ClassVar[int]
    domain: str
    loss_sum: float
    tokens: int
    excess_sum: float
    def __init__(self, domain: _Optional[str] = ..., loss_sum: _Optional[float] = ..., tokens: _Optional[int] = ..., excess_sum: _Optional[float] = ...) -> None: ...

class ReportLossesRequest(_message.Message):
    __slots__ = ("run_id", "lease", "step", "segment", "losses")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    lease: str
    step: int
    segment: int
    losses: _containers.RepeatedCompositeFieldContainer[DomainLoss]
    def __init__(self, run_id: _Optional[str] = ..., lease: _Optional[str] = ..., step: _Optional[int] = ..., segment: _Optional[int] = ..., losses: _Optional[_Iterable[_Union[DomainLoss, _Mapping]]] = ...) -> None: ...

class ReportLossesResponse(_message.Message):
    __slots__ = ("accepted", "refused")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    refused: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, accepted: _Optional[int] = ..., refused: _Optional[_Iterable[str]] = ...) -> None: ...
