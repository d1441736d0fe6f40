"""`headrace mixer compute METHOD`: weights from counts, targets, embeddings or measured mixtures.

Every method goes through the same pipeline of caps (`headrace.mixer.result.finish`).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import click
from headrace.client.cli.mixer_options import Request, pairs, part, read_table, shared


@click.group()
def compute() -> None:
    """Compute weights by a METHOD and keep them in a result file."""


@compute.command()
@click.option("--domain", multiple=True, help="A domain; repeat (or give token counts).")
@shared
def uniform(domain: tuple[str, ...], **options: Any) -> None:
    """The same weight for every domain."""
    from headrace.mixer import static

    request = Request(options)
    request.finish("uniform", static.uniform(domain or request.need_tokens("uniform")))


@compute.command()
@shared
def natural(**options: Any) -> None:
    """In proportion to the token counts."""
    from headrace.mixer import static

    request = Request(options)
    request.finish("natural", static.natural(request.need_tokens("natural")))


@compute.command()
@click.option("--t", "exponent", type=float, required=True, help="Temperature: 1 is natural, larger is flatter.")
@shared
def temperature(exponent: float, **options: Any) -> None:
    """In proportion to tokens^(1/T)."""
    from headrace.mixer import static

    request = Request(options)
    weights = static.temperature(request.need_tokens("temperature"), exponent)
    request.finish("temperature", weights, parameters={"t": exponent})


@compute.command()
@click.option("--epochs", type=float, default=4.0, show_default=True, help="Most epochs of any domain.")
@shared
def unimax(epochs: float, **options: Any) -> None:
    """As uniform as the epochs allow; says what could not be spent."""
    from headrace.mixer import static

    request = Request(options)
    result = static.unimax(request.need_tokens("unimax"), request.need_budget("unimax"), epochs)
    short = f"{result.shortfall:.6g} tokens of the budget exceed {epochs:g} epochs of every domain"
    request.finish(
        "unimax",
        result.weights,
        parameters={"epochs": epochs},
        diagnostics={"shortfall": result.shortfall},
        warnings=(short,) if result.shortfall else (),
    )


@compute.command()
@click.option("--target", multiple=True, required=True, metavar="NAME=E", help="Target epochs of a domain; repeat.")
@shared
def epochs(target: tuple[str, ...], **options: Any) -> None:
    """From target epochs per domain."""
    from headrace.mixer import static

    request = Request(options)
    wanted = pairs(target, option="--target", number=part)
    result = static.from_epochs(request.need_tokens("epochs"), wanted, request.need_budget("epochs"))
    request.finish(
        "epochs",
        result.weights,
        parameters={"target": wanted},
        diagnostics={"scale": result.scale, "realized": result.realized},
    )


@compute.command()
@click.option("--weight", multiple=True, metavar="NAME=W", help="Part of a domain, any finite number >= 0; repeat.")
@click.option("--weights", "path", type=click.Path(path_type=Path), help="TOML or JSON table of domain = part.")
@shared
def manual(weight: tuple[str, ...], path: Path | None, **options: Any) -> None:
    """Weights as you write them, normalised and put through the caps."""
    from headrace.mixer import static

    parts = (read_table(path) if path else {}) | pairs(weight, option="--weight", number=part)
    Request(options).finish("manual", static.manual(parts))


@compute.command("krls")
@click.option(
    "--embeddings",
    "paths",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="File of `headrace mixer proxy` or `embed`; repeat for domains that joined.",
)
@click.option("--convention", type=click.Choice(["paper", "reference"]), default="reference", show_default=True)
@click.option("--purpose", type=click.Choice(["pretrain", "finetune"]), default="pretrain", show_default=True)
@click.option("--lam", type=float, help="Lambda, absolute (the released code: 10).")
@click.option("--relative-lam", type=float, help="Lambda over the mean squared norm of the embeddings; default: 0.1.")
@click.option("--temperature", "softness", type=float, help="Temperature of the softmax.")
@click.option("--unit-length/--any-length", default=None, help="Scale embeddings to length 1 first; default: yes.")
@click.option("--as-published", is_flag=True, help="Lambda 10 and embeddings of any length, as the convention has it.")
@shared
def krls_(
    paths: tuple[Path, ...],
    convention: Any,
    purpose: Any,
    lam: float | None,
    relative_lam: float | None,
    softness: float | None,
    unit_length: bool | None,
    as_published: bool,
    **options: Any,
) -> None:
    """Chameleon: leverage scores of domain embeddings.

    By default lambda is a tenth of the mean squared norm and embeddings are scaled to length 1: weights of small
    proxies vary less from seed to seed that way. No domain of three or more gets over half unless --largest-share
    says so.
    """
    from headrace.mixer.embeddings import load_embeddings, merge
    from headrace.mixer.krls import DEFAULT_LARGEST_SHARE, KrlsSpec, krls

    if lam is None and relative_lam is None and not as_published:
        relative_lam = 0.1
    spec = KrlsSpec(
        convention=convention,
        purpose=purpose,
        lam=lam,
        relative_lam=relative_lam,
        temperature=softness,
        unit_length=not as_published if unit_length is None else unit_length,
    )
    found = functools.reduce(merge, map(load_embeddings, paths))
    result = krls(found.vectors, spec)
    Request(options, largest_share=DEFAULT_LARGEST_SHARE if len(found.vectors) > 2 else 1.0).finish(
        "krls", result.weights, inputs={"embeddings": found.digest}, **result.details(spec)
    )


@compute.command()
@click.option("--trials", type=click.Path(path_type=Path), required=True, help="Folder that `mixer ablate` filled.")
@click.option("--target", "importance", multiple=True, metavar="NAME=P", help="How much a domain matters; repeat.")
@click.option("--strength", type=float, default=0.05, show_default=True, help="Pull towards the token shares (KL).")
@shared
def loglinear(trials: Path, importance: tuple[str, ...], strength: float, **options: Any) -> None:
    """The best mixture under the caps by a log-linear law fitted to measured ones."""
    from headrace.mixer.loglinear import fit, runs_needed, solve
    from headrace.mixer.static import natural, uniform
    from headrace.mixer.trials import beside, load_trials, rank

    request, found = Request(options), load_trials(trials)
    parts = pairs(importance, option="--target", number=part) or None
    best = rank(found, parts)[0]
    tasks = [name for name in best.losses if parts is None or parts.get(name, 0) > 0]
    mixtures = [trial.weights for trial in found]
    laws = [fit(mixtures, [trial.losses[task] for trial in found]) for task in tasks]
    prior = natural(request.tokens) if request.tokens else uniform(best.weights)
    weights = [1.0 if parts is None else parts[task] for task in tasks]
    solution = solve(laws, prior, request.bounds(), task_weights=weights, strength=strength)
    predicted = sum(w * law.predict(solution.weights) for w, law in zip(weights, laws, strict=True)) / sum(weights)
    needed = runs_needed(len(best.weights))
    said, better = beside(found, predicted, request.bounds(), parts)
    few = f"{len(found)} trials for {len(best.weights)} domains; the law wants at least {needed}"
    request.finish(
        "loglinear",
        solution.weights,
        parameters={"strength": strength, "tasks": tasks},
        diagnostics=said | {"fit_error": max(law.error for law in laws)},
        warnings=((few,) if len(found) < needed else ()) + better,
    )


@compute.command("regmix")
@click.option("--trials", type=click.Path(path_type=Path), required=True, help="Folder that `mixer ablate` filled.")
@click.option("--target", "importance", multiple=True, metavar="NAME=P", help="How much a domain matters; repeat.")
@click.option("--regressor", type=click.Choice(["best", "linear", "trees"]), default="best", show_default=True)
@click.option("--draws", type=click.IntRange(min=1), default=100_000, show_default=True, help="Candidates predicted.")
@click.option("--top", type=click.IntRange(min=1), default=128, show_default=True, help="Best ones that are averaged.")
@click.option("--seed", type=int, default=42, show_default=True)
@shared
def regmix_(
    trials: Path, importance: tuple[str, ...], regressor: Any, draws: int, top: int, seed: int, **options: Any
) -> None:
    """The mean of the best of many draws, by a regression on measured mixtures (RegMix)."""
    from headrace.mixer.regmix import RegmixSpec, regmix
    from headrace.mixer.static import natural, uniform
    from headrace.mixer.trials import beside, load_trials

    request, found = Request(options), load_trials(trials)
    parts = pairs(importance, option="--target", number=part) or None
    spec = RegmixSpec(regressor=regressor, draws=draws, top=top, seed=seed)
    prior = natural(request.tokens) if request.tokens else uniform(found[0].weights)
    losses = [trial.target(parts) for trial in found]
    result = regmix([trial.weights for trial in found], losses, prior, spec, request.bounds())
    said, better = beside(found, result.predicted, request.bounds(), parts)
    outside = f"fewer than {top} of {draws} draws keep the bounds; they were imposed on the answer instead"
    request.finish(
        "regmix",
        result.weights,
        convention=result.regressor,
        parameters={"draws": draws, "top": top, "seed": seed},
        diagnostics=said | {"rank_correlation": dict(result.ranks)},
        warnings=(() if result.within else (outside,)) + better,
    )


@compute.command("mixmin")
@click.option("--log-probs", "path", type=click.Path(path_type=Path), required=True, help=".npz, an array a source.")
@click.option("--steps", type=click.IntRange(min=1), default=100, show_default=True)
@shared
def mixmin_(path: Path, steps: int, **options: Any) -> None:
    """The sources whose proxies' mixture predicts the target best (MixMin).

    The file holds for each source the log-probabilities a token that its own proxy gives the same target examples.
    """
    from headrace.mixer.embeddings import read_vectors
    from headrace.mixer.files import digest_vectors
    from headrace.mixer.mixmin import mixmin

    found, _ = read_vectors(path)
    result = mixmin(found, steps=steps)
    request = Request(options)
    request.finish(
        "mixmin",
        result.weights,
        parameters={"steps": steps},
        inputs={"log_probabilities": digest_vectors(found)},
        diagnostics={"loss": result.loss, "steps": result.steps, "gap": result.gap},
    )


@compute.command("aioli")
@click.option("--falls", "path", type=click.Path(path_type=Path), required=True, help="JSON: falls[i][j], see below.")
@click.option("--eta", type=float, default=0.2, show_default=True, help="Step size of the weights.")
@click.option("--concentration", type=float, default=1.0, show_default=True, help="Weight of j in its short training.")
@shared
def aioli_(path: Path, eta: float, concentration: float, **options: Any) -> None:
    """One step of Aioli from --previous (or equal weights) by a measured matrix.

    falls[i][j] is how much the loss of domain i fell in a short training on (nearly) domain j.
    """
    from headrace.mixer import aioli
    from headrace.mixer.files import digest_file
    from headrace.mixer.result import weights_of
    from headrace.mixer.static import uniform

    falls = read_table(path)
    pure = aioli.unmix(falls, concentration)
    now = uniform(pure) if options["previous"] is None else weights_of(options["previous"])
    Request(options).finish(
        "aioli",
        aioli.advance(now, pure, eta=eta),
        parameters={"eta": eta, "concentration": concentration},
        inputs={"falls": digest_file(path)},
        diagnostics={"pure_falls": pure},
    )
