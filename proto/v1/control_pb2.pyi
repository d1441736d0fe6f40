from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunInfo(_message.Message):
    __slots__ = ("run_id", "name", "spec_digest", "spec_json", "seal", "confirmed", "lead", "end_step", "lease_job", "lease_attempt", "lease_holder", "domains", "weights", "segment", "log_head", "parent", "branch_at")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LEAD_FIELD_NUMBER: _ClassVar[int]
    END_STEP_FIELD_NUMBER: _ClassVar[int]
    LEASE_JOB_FIELD_NUMBER: _ClassVar[int]
    LEASE_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    LEASE_HOLDER_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    LOG_HEAD_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_AT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    name: str
    spec_digest: bytes
    spec_json: str
    seal: int
    confirmed: int
    lead: int
    end_step: int
    lease_job: str
    lease_attempt: int
    lease_holder: str
    domains: _containers.RepeatedScalarFieldContainer[str]
    weights: _containers.RepeatedScalarFieldContainer[float]
    segment: int
    log_head: bytes
    parent: str
    branch_at: int
    def __init__(self, run_id: _Optional[str] = ..., name: _Optional[str] = ..., spec_digest: _Optional[bytes] = ..., spec_json: _Optional[str] = ..., seal: _Optional[int] = ..., confirmed: _Optional[int] = ..., lead: _Optional[int] = ..., end_step: _Optional[int] = ..., lease_job: _Optional[str] = ..., lease_attempt: _Optional[int] = ..., lease_holder: _Optional[str] = ..., domains: _Optional[_Iterable[str]] = ..., weights: _Optional[_Iterable[float]] = ..., segment: _Optional[int] = ..., log_head: _Optional[bytes] = ..., parent: _Optional[str] = ..., branch_at: _Optional[int] = ...) -> None: ...

class CreateRunRequest(_message.Message):
    __slots__ = ("spec_toml", "base_dir", "author", "place")
    SPEC_TOML_FIELD_NUMBER: _ClassVar[int]
    BASE_DIR_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    spec_toml: str
    base_dir: str
    author: str
    place: str
    def __init__(self, spec_toml: _Optional[str] = ..., base_dir: _Optional[str] = ..., author: _Optional[str] = ..., place: _Optional[str] = ...) -> None: ...

class CreateRunResponse(_message.Message):
    __slots__ = ("run", "created", "notes")
    RUN_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    run: RunInfo
    created: bool
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run: _Optional[_Union[RunInfo, _Mapping]] = ..., created: bool = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "refused")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUNS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[RunInfo]
    refused: _containers.ScalarMap[str, str]
    def __init__(self, runs: _Optional[_Iterable[_Union[RunInfo, _Mapping]]] = ..., refused: _Optional[_Mapping[str, str]] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: RunInfo
    def __init__(self, run: _Optional[_Union[RunInfo, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("sequence", "weights", "grow", "mask", "cancel", "from_step", "until_step", "author", "reason", "time_us", "previous_hash", "hash", "cancelled", "idempotency_key")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    GROW_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    UNTIL_STEP_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_HASH_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    weights: Weights
    grow: Grow
    mask: MaskBody
    cancel: Cancel
    from_step: int
    until_step: int
    author: str
    reason: str
    time_us: int
    previous_hash: bytes
    hash: bytes
    cancelled: bool
    idempotency_key: str
    def __init__(self, sequence: _Optional[int] = ..., weights: _Optional[_Union[Weights, _Mapping]] = ..., grow: _Optional[_Union[Grow, _Mapping]] = ..., mask: _Optional[_Union[MaskBody, _Mapping]] = ..., cancel: _Optional[_Union[Cancel, _Mapping]] = ..., from_step: _Optional[int] = ..., until_step: _Optional[int] = ..., author: _Optional[str] = ..., reason: _Optional[str] = ..., time_us: _Optional[int] = ..., previous_hash: _Optional[bytes] = ..., hash: _Optional[bytes] = ..., cancelled: bool = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("weights", "loss_weights")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class LossWeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.ScalarMap[str, float]
    loss_weights: _containers.ScalarMap[str, float]
    def __init__(self, weights: _Optional[_Mapping[str, float]] = ..., loss_weights: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Grow(_message.Message):
    __slots__ = ("domain", "generation", "manifest", "join")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    domain: str
    generation: str
    manifest: str
    join: str
    def __init__(self, domain: _Optional[str] = ..., generation: _Optional[str] = ..., manifest: _Optional[str] = ..., join: _Optional[str] = ...) -> None: ...

class MaskBody(_message.Message):
    __slots__ = ("by", "values", "domain")
    BY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    by: str
    values: _containers.RepeatedScalarFieldContainer[str]
    domain: str
    def __init__(self, by: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ..., domain: _Optional[str] = ...) -> None: ...

class Cancel(_message.Message):
    __slots__ = ("sequence",)
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    def __init__(self, sequence: _Optional[int] = ...) -> None: ...

class SetWeightsRequest(_message.Message):
    __slots__ = ("run", "weights", "from_step", "until_step", "loss_weights", "author", "reason", "expected_head", "idempotency_key", "dry_run")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class LossWeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    RUN_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    UNTIL_STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_HEAD_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    weights: _containers.ScalarMap[str, float]
    from_step: int
    until_step: int
    loss_weights: _containers.ScalarMap[str, float]
    author: str
    reason: str
    expected_head: bytes
    idempotency_key: str
    dry_run: bool
    def __init__(self, run: _Optional[str] = ..., weights: _Optional[_Mapping[str, float]] = ..., from_step: _Optional[int] = ..., until_step: _Optional[int] = ..., loss_weights: _Optional[_Mapping[str, float]] = ..., author: _Optional[str] = ..., reason: _Optional[str] = ..., expected_head: _Optional[bytes] = ..., idempotency_key: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class CancelEventRequest(_message.Message):
    __slots__ = ("run", "sequence", "author", "reason", "expected_head", "idempotency_key", "dry_run")
    RUN_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_HEAD_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    sequence: int
    author: str
    reason: str
    expected_head: bytes
    idempotency_key: str
    dry_run: bool
    def __init__(self, run: _Optional[str] = ..., sequence: _Optional[int] = ..., author: _Optional[str] = ..., reason: _Optional[str] = ..., expected_head: _Optional[bytes] = ..., idempotency_key: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class EventResponse(_message.Message):
    __slots__ = ("event", "seal", "confirmed", "notes")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    event: Event
    seal: int
    confirmed: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, event: _Optional[_Union[Event, _Mapping]] = ..., seal: _Optional[int] = ..., confirmed: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("run", "after_sequence")
    RUN_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    run: str
    after_sequence: int
    def __init__(self, run: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("run", "step", "text_characters")
    RUN_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TEXT_CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    run: str
    step: int
    text_characters: int
    def __init__(self, run: _Optional[str] = ..., step: _Optional[int] = ..., text_characters: _Optional[int] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("step", "segment", "phase", "slots", "step_digest", "sealed")
    STEP_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    STEP_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    step: int
    segment: int
    phase: str
    slots: _containers.RepeatedCompositeFieldContainer[Slot]
    step_digest: bytes
    sealed: bool
    def __init__(self, step: _Optional[int] = ..., segment: _Optional[int] = ..., phase: _Optional[str] = ..., slots: _Optional[_Iterable[_Union[Slot, _Mapping]]] = ..., step_digest: _Optional[bytes] = ..., sealed: bool = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("slot", "domain", "index", "window", "sources", "row_digest", "text", "masks", "emptied")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    PASS_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    ROW_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    EMPTIED_FIELD_NUMBER: _ClassVar[int]
    slot: int
    domain: str
    index: int
    window: int
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    row_digest: bytes
    text: str
    masks: _containers.RepeatedScalarFieldContainer[int]
    emptied: bool
    def __init__(self, slot: _Optional[int] = ..., domain: _Optional[str] = ..., index: _Optional[int] = ..., window: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., row_digest: _Optional[bytes] = ..., text: _Optional[str] = ..., masks: _Optional[_Iterable[int]] = ..., emptied: bool = ..., **kwargs) -> None: ...

class Source(_message.Message):
    __slots__ = ("file", "row", "begin", "end", "masked")
    FILE_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    MASKED_FIELD_NUMBER: _ClassVar[int]
    file: str
    row: int
    begin: int
    end: int
    masked: bool
    def __init__(self, file: _Optional[str] = ..., row: _Optional[int] = ..., begin: _Optional[int] = ..., end: _Optional[int] = ..., masked: bool = ...) -> None: ...

class BranchRunRequest(_message.Message):
    __slots__ = ("parent", "at", "name", "skip", "changes_toml", "batch", "weights", "author", "dry_run", "without_masks")
    class WeightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    PARENT_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    CHANGES_TOML_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_MASKS_FIELD_NUMBER: _ClassVar[int]
    parent: str
    at: int
    name: str
    skip: int
    changes_toml: str
    batch: int
    weights: _containers.ScalarMap[str, float]
    author: str
    dry_run: bool
    without_masks: bool
    def __init__(self, parent: _Optional[str] = ..., at: _Optional[int] = ..., name: _Optional[str] = ..., skip: _Optional[int] = ..., changes_toml: _Optional[str] = ..., batch: _Optional[int] = ..., weights: _Optional[_Mapping[str, float]] = ..., author: _Optional[str] = ..., dry_run: bool = ..., without_masks: bool = ...) -> None: ...

class GrowDomainRequest(_message.Message):
    __slots__ = ("run", "domain", "manifest", "join", "from_step", "author", "reason", "expected_head", "idempotency_key", "dry_run")
    RUN_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_HEAD_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    domain: str
    manifest: str
    join: str
    from_step: int
    author: str
    reason: str
    expected_head: bytes
    idempotency_key: str
    dry_run: bool
    def __init__(self, run: _Optional[str] = ..., domain: _Optional[str] = ..., manifest: _Optional[str] = ..., join: _Optional[str] = ..., from_step: _Optional[int] = ..., author: _Optional[str] = ..., reason: _Optional[str] = ..., expected_head: _Optional[bytes] = ..., idempotency_key: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class MaskRequest(_message.Message):
    __slots__ = ("run", "mask", "from_step", "author", "reason", "expected_head", "idempotency_key", "dry_run")
    RUN_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_HEAD_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    mask: MaskBody
    from_step: int
    author: str
    reason: str
    expected_head: bytes
    idempotency_key: str
    dry_run: bool
    def __init__(self, run: _Optional[str] = ..., mask: _Optional[_Union[MaskBody, _Mapping]] = ..., from_step: _Optional[int] = ..., author: _Optional[str] = ..., reason: _Optional[str] = ..., expected_head: _Optional[bytes] = ..., idempotency_key: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class ForecastRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class ForecastResponse(_message.Message):
    __slots__ = ("lines", "json")
    LINES_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    json: str
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., json: _Optional[str] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run", "after_sequence")
    RUN_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    run: str
    after_sequence: int
    def __init__(self, run: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class WatchRunResponse(_message.Message):
    __slots__ = ("run", "events", "ranks", "figures")
    RUN_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    run: RunInfo
    events: _containers.RepeatedCompositeFieldContainer[Event]
    ranks: _containers.RepeatedCompositeFieldContainer[Rank]
    figures: _containers.RepeatedCompositeFieldContainer[DomainFigures]
    def __init__(self, run: _Optional[_Union[RunInfo, _Mapping]] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., ranks: _Optional[_Iterable[_Union[Rank, _Mapping]]] = ..., figures: _Optional[_Iterable[_Union[DomainFigures, _Mapping]]] = ...) -> None: ...

class Rank(_message.Message):
    __slots__ = ("label", "holder", "next_step", "heard_us")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    HEARD_US_FIELD_NUMBER: _ClassVar[int]
    label: str
    holder: str
    next_step: int
    heard_us: int
    def __init__(self, label: _Optional[str] = ..., holder: _Optional[str] = ..., next_step: _Optional[int] = ..., heard_us: _Optional[int] = ...) -> None: ...

class DomainFigures(_message.Message):
    __slots__ = ("domain", "target", "share", "tokens", "epochs")
    DOMAIN_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    domain: str
    target: float
    share: float
    tokens: int
    epochs: float
    def __init__(self, domain: _Optional[str] = ..., target: _Optional[float] = ..., share: _Optional[float] = ..., tokens: _Optional[int] = ..., epochs: _Optional[float] = ...) -> None: ...

class ExportRunRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class ExportRunResponse(_message.Message):
    __slots__ = ("document",)
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    document: str
    def __init__(self, document: _Optional[str] = ...) -> None: ...

class ImportRunRequest(_message.Message):
    __slots__ = ("document", "base_dir", "dry_run")
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    BASE_DIR_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    document: str
    base_dir: str
    dry_run: bool
    def __init__(self, document: _Optional[str] = ..., base_dir: _Optional[str] = ..., dry_run: bool = ...) -> None: ...

class ListRefusalsRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...

class ListRefusalsResponse(_message.Message):
    __slots__ = ("refusals",)
    REFUSALS_FIELD_NUMBER: _ClassVar[int]
    refusals: _containers.RepeatedCompositeFieldContainer[Refusal]
    def __init__(self, refusals: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("run", "time_us", "who", "method", "reason")
    RUN_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    WHO_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run: str
    time_us: int
    who: str
    method: str
    reason: str
    def __init__(self, run: _Optional[str] = ..., time_us: _Optional[int] = ..., who: _Optional[str] = ..., method: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...
