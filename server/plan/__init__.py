"""The heart: what every step of a run holds, as pure functions of spec, corpus facts and event log. No I/O.

Read in this order:

    spec.py       what is fixed when a run is made; `read.py` reads RUN.toml strictly, `strict.py` finds the lines
    facts.py      the numbers that a corpus hands over
    log.py        what may change later: events in an audit chain
    timeline.py   cuts the run into spans of one phase and one source of weights
    shares.py     weights to integers; `pieces.py` makes the kernel's piece of a span
    plan.py       draw, cursor, hash, segment, end: the answers
    cursor.py     where domains stand at the start of a step
    anchors.py    stored cursors, and those that walks leave, from which any step is near
    whole.py      evaluation: every window once, in order
    branched.py   runs that share another's past
    validate.py   the one judge of events
    forecast.py   what a run will do before it runs; `scaling.py` what repeated tokens are worth
    convert.py    mixes of other loaders

The kernel that advances and deals is `native/src/plan`: `balanced.rs` (the draw), `pass.rs` (passes and tokens),
`cap.rs`, `shares.rs`, `step.rs`, `advance.rs`, `deal.rs` (slots and windows). `tests/oracle` is all of it again in
plain Python, slot by slot, and `tests/oracle/golden.json` fixes the numbers.
"""
