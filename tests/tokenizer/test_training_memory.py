"""Training from an iterator: memory follows the distinct words and not the text, and there are signs of life."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import random, resource, sys
from headrace.tokenizer.spec import TrainSpec
from headrace.tokenizer.train import train
size, distinct = int(float(sys.argv[1])), sys.argv[2] == "distinct"
rng = random.Random(1)
line = " ".join("word%d" % rng.randint(0, 500) for _ in range(20_000))
def texts():
    done = 0
    while done < size:
        text = "".join(" %x" % rng.getrandbits(60) for _ in range(10_000)) if distinct else line
        yield text
        done += len(text)
stages = []
for part in texts():
    break
train(TrainSpec(vocab_size=300, variant="classical", most_pieces=200_000), {"x": [line]})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
made, report = train(TrainSpec(vocab_size=300, variant="classical", most_pieces=200_000), {"x": texts()},
                     progress=lambda p: stages.append(p.stage))
grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
print(grown, report.bytes["all"], ",".join(sorted(set(stages))), len(report.warnings))
"""


def grown(size: float, kind: str) -> tuple[float, float, str, int]:
    """MB of memory that training added, bytes seen, stages, warnings."""
    command = [sys.executable, "-c", SCRIPT, str(size), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    memory, seen, stages, warnings = done.stdout.split()
    return float(memory), float(seen), stages, int(warnings)


SIZES = [pytest.param(4e7, id="40MB"), pytest.param(2e9, id="2GB", marks=pytest.mark.skipif(
    not os.environ.get("HEADRACE_SLOW"), reason="takes minutes; set HEADRACE_SLOW=1"))]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_repeating_text_is_flat(size: float) -> None:
    memory, seen, stages, warnings = grown(size, "same")
    assert seen >= size
    assert memory < 60
    assert (stages, warnings) == ("count,merge", 0)


@pytest.mark.parametrize("size", SIZES)
def test_distinct_words_are_bounded_with_a_warning(size: float) -> None:
    memory, seen, stages, warnings = grown(size / 2, "distinct")
    assert seen >= size / 2
    assert memory < 150
    assert (stages, warnings) == ("count,merge,warning", 1)
