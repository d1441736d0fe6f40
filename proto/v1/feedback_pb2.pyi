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

class WatchLossesRequest(_message.Message):
    __slots__ = ("run", "from_step", "to_step", "follow")
    RUN_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    TO_STEP_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    run: str
    from_step: int
    to_step: int
    follow: bool
    def __init__(self, run: _Optional[str] = ..., from_step: _Optional[int] = ..., to_step: _Optional[int] = ..., follow: bool = ...) -> None: ...

class StepLosses(_message.Message):
    __slots__ = ("step", "losses")
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    step: int
    losses: _containers.RepeatedCompositeFieldContainer[DomainLoss]
    def __init__(self, step: _Optional[int] = ..., losses: _Optional[_Iterable[_Union[DomainLoss, _Mapping]]] = ...) -> None: ...

class WatchLossesResponse(_message.Message):
    __slots__ = ("steps", "confirmed")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[StepLosses]
    confirmed: int
    def __init__(self, steps: _Optional[_Iterable[_Union[StepLosses, _Mapping]]] = ..., confirmed: _Optional[int] = ...) -> None: ...
