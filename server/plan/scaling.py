"""What repeated tokens are worth: the data-constrained scaling law (Muennighoff et al., NeurIPS 2023).

The constants are those of the authors' published fit (English web text, models up to 8.7B); other text may wear out
sooner or later. They say what to expect, not what to do.
"""

from __future__ import annotations

import math

REPEATS = 15.387756
"""R*_D: repetitions after which a further one is worth 1/e of a new one."""
_EXCESS = 5.309743
_LN_A, _LN_B, _LN_E, _POWER = 6.255414, 7.3049974, 0.6254804, 0.3526596


def effective_tokens(tokens: float, unique: float) -> float:
    """D' = U + U R* (1 - exp(-R / R*)), R = D / U - 1: the new tokens that `tokens` from `unique` ones are worth."""
    if unique <= 0 or tokens <= unique:
        return max(tokens, 0.0)
    return unique + unique * REPEATS * -math.expm1(-(tokens / unique - 1) / REPEATS)


def loss(parameters: float, tokens: float, unique: float) -> float:
    """Predicted loss in nats a token of a model of `parameters` after `tokens` tokens from `unique` ones."""
    best = ((_POWER * math.exp(_LN_A)) / (_POWER * math.exp(_LN_B))) ** (1 / (2 * _POWER))
    useful = min(parameters, unique * best * best)
    worth = useful + useful * _EXCESS * -math.expm1(-(parameters / useful - 1) / _EXCESS)
    data = effective_tokens(tokens, unique)
    return math.exp(_LN_E) + math.exp(_LN_A - _POWER * math.log(worth)) + math.exp(_LN_B - _POWER * math.log(data))
