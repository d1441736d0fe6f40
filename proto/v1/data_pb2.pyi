from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OpenMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPEN_MODE_UNSPECIFIED: _ClassVar[OpenMode]
    OPEN_MODE_TRAIN: _ClassVar[OpenMode]
    OPEN_MODE_OBSERVE: _ClassVar[OpenMode]
OPEN_MODE_UNSPECIFIED: OpenMode
OPEN_MODE_TRAIN: OpenMode
OPEN_MODE_OBSERVE: OpenMode

class Job(_message.Message):
    __slots__ = ("id", "attempt", "rank", "world", "holder", "peers")
    ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    attempt: int
    rank: str
    world: int
    holder: str
    peers: int
    def __init__(self, id: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[str] = ..., world: _Optional[int] = ..., holder: _Optional[str] = ..., peers: _Optional[int] = ...) -> None: ...

class State(_message.Message):
    __slots__ = ("schema", "run_id", "spec_digest", "plan_hash", "next_step")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    schema: int
    run_id: str
    spec_digest: bytes
    plan_hash: bytes
    next_step: int
    def __init__(self, schema: _Optional[int] = ..., run_id: _Optional[str] = ..., spec_digest: _Optional[bytes] = ..., plan_hash: _Optional[bytes] = ..., next_step: _Optional[int] = ...) -> None: ...

class OpenRunRequest(_message.Message):
    __slots__ = ("run", "mode", "job", "state", "takeover", "client_version")
    RUN_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    run: str
    mode: OpenMode
    job: Job
    state: State
    takeover: bool
    client_version: str
    def __init__(self, run: _Optional[str] = ..., mode: _Optional[_Union[OpenMode, str]] = ..., job: _Optional[_Union[Job, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ..., takeover: bool = ..., client_version: _Optional[str] = ...) -> None: ...

class OpenRunResponse(_message.Message):
    __slots__ = ("run_id", "lease", "spec_digest", "plan_hash", "next_step", "seal", "confirmed", "lead", "end_step", "domains", "vocab_size", "pad_id", "id_bytes", "shapes", "max_rows", "server_version", "tokenizer_digest", "corpus_digest", "server_time_us", "streams", "notes")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    SPEC_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    LEAD_FIELD_NUMBER: _ClassVar[int]
    END_STEP_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAD_ID_FIELD_NUMBER: _ClassVar[int]
    ID_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHAPES_FIELD_NUMBER: _ClassVar[int]
    MAX_ROWS_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CORPUS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIME_US_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    lease: str
    spec_digest: bytes
    plan_hash: bytes
    next_step: int
    seal: int
    confirmed: int
    lead: int
    end_step: int
    domains: _containers.RepeatedScalarFieldContainer[str]
    vocab_size: int
    pad_id: int
    id_bytes: int
    shapes: _containers.RepeatedCompositeFieldContainer[Shape]
    max_rows: int
    server_version: str
    tokenizer_digest: bytes
    corpus_digest: bytes
    server_time_us: int
    streams: bool
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run_id: _Optional[str] = ..., lease: _Optional[str] = ..., spec_digest: _Optional[bytes] = ..., plan_hash: _Optional[bytes] = ..., next_step: _Optional[int] = ..., seal: _Optional[int] = ..., confirmed: _Optional[int] = ..., lead: _Optional[int] = ..., end_step: _Optional[int] = ..., domains: _Optional[_Iterable[str]] = ..., vocab_size: _Optional[int] = ..., pad_id: _Optional[int] = ..., id_bytes: _Optional[int] = ..., shapes: _Optional[_Iterable[_Union[Shape, _Mapping]]] = ..., max_rows: _Optional[int] = ..., server_version: _Optional[str] = ..., tokenizer_digest: _Optional[bytes] = ..., corpus_digest: _Optional[bytes] = ..., server_time_us: _Optional[int] = ..., streams: bool = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class Shape(_message.Message):
    __slots__ = ("from_step", "to_step", "batch", "seq_len")
    FROM_STEP_FIELD_NUMBER: _ClassVar[int]
    TO_STEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_LEN_FIELD_NUMBER: _ClassVar[int]
    from_step: int
    to_step: int
    batch: int
    seq_len: int
    def __init__(self, from_step: _Optional[int] = ..., to_step: _Optional[int] = ..., batch: _Optional[int] = ..., seq_len: _Optional[int] = ...) -> None: ...

class Confirmation(_message.Message):
    __slots__ = ("next_step", "received", "waited_us", "stalls")
    NEXT_STEP_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    WAITED_US_FIELD_NUMBER: _ClassVar[int]
    STALLS_FIELD_NUMBER: _ClassVar[int]
    next_step: int
    received: _containers.RepeatedCompositeFieldContainer[RowsReceived]
    waited_us: int
    stalls: int
    def __init__(self, next_step: _Optional[int] = ..., received: _Optional[_Iterable[_Union[RowsReceived, _Mapping]]] = ..., waited_us: _Optional[int] = ..., stalls: _Optional[int] = ...) -> None: ...

class RowsReceived(_message.Message):
    __slots__ = ("step", "first_slot", "row_digests")
    STEP_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    ROW_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    step: int
    first_slot: int
    row_digests: bytes
    def __init__(self, step: _Optional[int] = ..., first_slot: _Optional[int] = ..., row_digests: _Optional[bytes] = ...) -> None: ...

class GetBatchRequest(_message.Message):
    __slots__ = ("run_id", "lease", "step", "first_slot", "rows", "confirmation")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    lease: str
    step: int
    first_slot: int
    rows: int
    confirmation: Confirmation
    def __init__(self, run_id: _Optional[str] = ..., lease: _Optional[str] = ..., step: _Optional[int] = ..., first_slot: _Optional[int] = ..., rows: _Optional[int] = ..., confirmation: _Optional[_Union[Confirmation, _Mapping]] = ...) -> None: ...

class GetBatchResponse(_message.Message):
    __slots__ = ("batch", "end", "refused", "seal", "confirmed", "more", "note", "share")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    batch: Batch
    end: End
    refused: Refused
    seal: int
    confirmed: int
    more: _containers.RepeatedCompositeFieldContainer[GetBatchResponse]
    note: str
    share: Share
    def __init__(self, batch: _Optional[_Union[Batch, _Mapping]] = ..., end: _Optional[_Union[End, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., seal: _Optional[int] = ..., confirmed: _Optional[int] = ..., more: _Optional[_Iterable[_Union[GetBatchResponse, _Mapping]]] = ..., note: _Optional[str] = ..., share: _Optional[_Union[Share, _Mapping]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("socket", "nonce", "refused")
    SOCKET_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    socket: str
    nonce: bytes
    refused: str
    def __init__(self, socket: _Optional[str] = ..., nonce: _Optional[bytes] = ..., refused: _Optional[str] = ...) -> None: ...

class RowRange(_message.Message):
    __slots__ = ("step", "first_slot", "rows", "share_at")
    STEP_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SHARE_AT_FIELD_NUMBER: _ClassVar[int]
    step: int
    first_slot: int
    rows: int
    share_at: int
    def __init__(self, step: _Optional[int] = ..., first_slot: _Optional[int] = ..., rows: _Optional[int] = ..., share_at: _Optional[int] = ...) -> None: ...

class StreamBatchesRequest(_message.Message):
    __slots__ = ("run_id", "lease", "confirmation", "ranges", "pack_bytes", "share_bytes")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    PACK_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARE_BYTES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    lease: str
    confirmation: Confirmation
    ranges: _containers.RepeatedCompositeFieldContainer[RowRange]
    pack_bytes: int
    share_bytes: int
    def __init__(self, run_id: _Optional[str] = ..., lease: _Optional[str] = ..., confirmation: _Optional[_Union[Confirmation, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[RowRange, _Mapping]]] = ..., pack_bytes: _Optional[int] = ..., share_bytes: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("code", "error", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    error: str
    message: str
    def __init__(self, code: _Optional[int] = ..., error: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("end_step", "reason")
    END_STEP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    end_step: int
    reason: str
    def __init__(self, end_step: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Batch(_message.Message):
    __slots__ = ("step", "segment", "first_slot", "rows", "seq_len", "token_ids", "domains", "edge_ends", "edges", "loss_weights", "row_digests", "plan_hash", "real_ids", "domain_names", "next_plan_hash", "mask_ends", "masks", "shared")
    STEP_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SEQ_LEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DOMAINS_FIELD_NUMBER: _ClassVar[int]
    EDGE_ENDS_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    ROW_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    REAL_IDS_FIELD_NUMBER: _ClassVar[int]
    DOMAIN_NAMES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PLAN_HASH_FIELD_NUMBER: _ClassVar[int]
    MASK_ENDS_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    step: int
    segment: int
    first_slot: int
    rows: int
    seq_len: int
    token_ids: bytes
    domains: bytes
    edge_ends: bytes
    edges: bytes
    loss_weights: bytes
    row_digests: bytes
    plan_hash: bytes
    real_ids: bytes
    domain_names: _containers.RepeatedScalarFieldContainer[str]
    next_plan_hash: bytes
    mask_ends: bytes
    masks: bytes
    shared: bool
    def __init__(self, step: _Optional[int] = ..., segment: _Optional[int] = ..., first_slot: _Optional[int] = ..., rows: _Optional[int] = ..., seq_len: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., domains: _Optional[bytes] = ..., edge_ends: _Optional[bytes] = ..., edges: _Optional[bytes] = ..., loss_weights: _Optional[bytes] = ..., row_digests: _Optional[bytes] = ..., plan_hash: _Optional[bytes] = ..., real_ids: _Optional[bytes] = ..., domain_names: _Optional[_Iterable[str]] = ..., next_plan_hash: _Optional[bytes] = ..., mask_ends: _Optional[bytes] = ..., masks: _Optional[bytes] = ..., shared: bool = ...) -> None: ...

class ConfirmRequest(_message.Message):
    __slots__ = ("run_id", "lease", "confirmation")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    lease: str
    confirmation: Confirmation
    def __init__(self, run_id: _Optional[str] = ..., lease: _Optional[str] = ..., confirmation: _Optional[_Union[Confirmation, _Mapping]] = ...) -> None: ...

class ConfirmResponse(_message.Message):
    __slots__ = ("seal", "confirmed")
    SEAL_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    seal: int
    confirmed: int
    def __init__(self, seal: _Optional[int] = ..., confirmed: _Optional[int] = ...) -> None: ...

class CloseRunRequest(_message.Message):
    __slots__ = ("run_id", "lease", "confirmation")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    lease: str
    confirmation: Confirmation
    def __init__(self, run_id: _Optional[str] = ..., lease: _Optional[str] = ..., confirmation: _Optional[_Union[Confirmation, _Mapping]] = ...) -> None: ...

class CloseRunResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
