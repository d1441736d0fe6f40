"""A snapshot as lines of a terminal: what needs a look, then domains, ranks and events as far as there is room."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from headrace.client.cli.terminal import clean, fit

Figures = Mapping[str, Any]
Paint = Callable[[str, str], str]
_STYLES = {"alarm": "31;1", "warning": "33;1", "note": "36", "quiet": "2", "bold": "1", "good": "32", "head": "7"}
_OF_STATE = {
    "quarantine": "alarm",
    "drift": "alarm",
    "off": "warning",
    "near cap": "warning",
    "capped": "note",
    "unused": "quiet",
}
_FEWEST = 3


def painter(colour: bool) -> Paint:
    """Puts a style around a text, or does not."""
    return (lambda style, text: f"\x1b[{_STYLES[style]}m{text}\x1b[0m") if colour else (lambda style, text: text)


def lines_of(
    shown: Figures, *, width: int, height: int | None, colour: bool = False, first: int = 0, said: str = ""
) -> list[str]:
    """The snapshot in so many columns, and lines where there is a bound; `first`: the domain to begin with."""
    paint = painter(colour)
    head = list(_head(shown, width, paint))
    if said:
        head.insert(0, paint("alarm", fit(clean(said), width)))
    notes = list(_notes(shown, width, paint))
    foot = [*_drift(shown, width, paint), *_ranks(shown, width, paint), *_events(shown, width, paint)]
    if height is None:
        return [*head, *notes, "", *_domains(shown["domains"], width, paint), *foot]
    notes = notes[: max(2, height // 5)]
    foot = foot[: max(0, height - len(head) - len(notes) - 2 - min(len(shown["domains"]), height // 3))]
    room = max(_FEWEST, height - len(head) - len(notes) - len(foot) - 2)
    rows = shown["domains"][first : first + room]
    return [*head, *notes, "", *_domains(rows, width, paint), *foot][:height]


def _head(shown: Figures, width: int, paint: Paint) -> Iterator[str]:
    run = shown["run"]
    end = f" of {run['end']:,} ({100 * run['confirmed'] / run['end']:.1f} %)" if run["end"] else ""
    yield paint("bold", fit(f"{run['name']}  step {run['confirmed']:,}{end}, sealed to {run['seal']:,}", width))
    yield _bar(run, width)
    phase = run["phase"]
    words = [
        f"{_short(run['tokens'])} tokens",
        _pace(run),
        f"phase {phase['name']}: {phase['batch']:,} x {phase['seq_len']:,} ({phase['packing']})",
        f"segment {run['segment']}",
    ]
    yield fit(", ".join(words), width)


def _bar(run: Figures, width: int) -> str:
    if not run["end"]:
        return ""
    done = round(width * run["confirmed"] / run["end"])
    sealed = round(width * min(run["seal"], run["end"]) / run["end"]) - done
    return str("█" * done + "▒" * sealed + "░" * (width - done - sealed))


def _pace(run: Figures) -> str:
    pace = run["steps_per_second"]
    if pace is None:
        return "pace not known"
    if not pace or not run["end"]:
        return f"{pace:.3g} steps/s"
    return f"{pace:.3g} steps/s, {_duration((run['end'] - run['confirmed']) / pace)} to go"


def _notes(shown: Figures, width: int, paint: Paint) -> Iterator[str]:
    for note in shown["notes"]:
        yield paint(note["level"], fit(f"{note['level']:<7}  {clean(note['text'])}", width))


def _domains(rows: Sequence[Figures], width: int, paint: Paint) -> Iterator[str]:
    bar = max(0, min(24, width - 80))
    name = max(8, min(44, width - 56 - (bar + 2 if bar else 0)))
    most = max((max(row["window_share"], row["window_due"]) for row in rows), default=0.0) or 1.0
    columns = f"{'target':>9}{'realized':>10}{'off':>8}{'epochs':>17}  state     "
    yield paint("quiet", fit(f"{fit('domain', name)}{columns}", width))
    for row in rows:
        apart = 100 * (row["window_share"] - row["window_due"])
        epochs = f"{row['epochs']:.2f}" + (f" / {row['cap']:.2f}" if row["cap"] else "")
        text = (
            f"{fit(row['name'], name)}{100 * row['target']:7.2f} %{100 * row['window_share']:8.2f} %{apart:+8.2f}"
            f"{epochs:>17}  {row['state']:<10}"
        )
        text = fit(text + ("  " + _bullet(row, most, bar) if bar else ""), width)
        style = _OF_STATE.get(row["state"])
        yield paint(style, text) if style else text


def _bullet(row: Figures, most: float, cells: int) -> str:
    """Realized as a bar, the target as a mark."""
    filled, mark = round(cells * row["window_share"] / most), round(cells * row["window_due"] / most)
    bar = "■" * filled + "·" * (cells - filled)
    place = min(max(mark - 1, 0), cells - 1)
    return f"{bar[:place]}|{bar[place + 1 :]}"


def _drift(shown: Figures, width: int, paint: Paint) -> Iterator[str]:
    figures = sorted(shown["drift"], key=lambda one: (-one["alarm"], -one["value_floor_ratio"]))
    yield ""
    if not figures:
        yield paint("quiet", fit("no drift figures yet", width))
        return
    yield paint("quiet", fit(f"{'drift':<24}{'feature':<30}{'JSD bits':>10}{'floor':>10}{'x floor':>9}", width))
    for one in figures[:4]:
        text = (
            f"{fit(one['domain'], 23)} {fit(one['feature'].replace('_', ' ') + ', ' + one['against'], 30)}"
            f"{one['jsd']:10.2g}{one['floor']:10.2g}{one['value_floor_ratio']:9.2f}"
        )
        yield paint("alarm", fit(text, width)) if one["alarm"] else fit(text, width)


def _ranks(shown: Figures, width: int, paint: Paint) -> Iterator[str]:
    lease = shown["lease"]
    yield ""
    if lease is None:
        yield paint("quiet", fit("no rank is open", width))
        return
    text = f"job {clean(lease['job'])}, attempt {lease['attempt']}: {lease['open']} of {lease['world']} ranks are open"
    yield paint("quiet", fit(text, width))
    for rank in lease["ranks"][:4]:
        heard = _duration(max(0.0, (shown["now_us"] - rank["heard_us"]) / 1e6))
        where = f"rank {clean(rank['label'])} ({clean(rank['holder'])})"
        yield fit(f"{fit(where, 36)} step {rank['next_step']:,}, {rank['behind']} behind, heard {heard} ago", width)


def _events(shown: Figures, width: int, paint: Paint) -> Iterator[str]:
    yield ""
    yield paint(
        "quiet", fit(f"{shown['event_count']} event{'' if shown['event_count'] == 1 else 's'}, newest first", width)
    )
    for event in shown["events"][:5]:
        state = "taken back" if event["cancelled"] else "from" if event["holds"] else "scheduled, from"
        moment = time.strftime("%Y-%m-%d %H:%M", time.gmtime(event["time_us"] / 1e6))
        text = (
            f"#{event['sequence']} {event['kind']} {state} step {event['from_step']:,} by "
            f"{clean(event['author']) or '-'} at {moment}: {clean(event['reason']) or clean(event['what'])}"
        )
        yield fit(text, width)


def _short(value: float) -> str:
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:g}"


def _duration(seconds: float) -> str:
    for size, unit, most in ((1, "s", 90), (60, "min", 5400), (3600, "h", 172_800)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}" if size < 3600 else f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:.1f} d"
