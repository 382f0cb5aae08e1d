"""The contenders in PyTorch: zuko and normflows, with the condition score by double backward.

Both run as their users run them, operation by operation: ``torch.compile`` does not
support the double backward that the residual needs.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.task import CLIP, LEARNING_RATE, Contender, Size, UnavailableError

_CORES = torch.get_num_threads()  # read before anything changes it


@dataclass(frozen=True)
class Density:
    """A conditional flow of either library behind one pair of calls.

    Args:
        module: Holds the parameters.
        log_prob: (x, u) to log p(x|u), with u of shape (n, 1).
        draw: u to one state for each row of it, and their log p(x|u).
    """

    module: nn.Module
    log_prob: Callable[[Tensor, Tensor], Tensor]
    draw: Callable[[Tensor], tuple[Tensor, Tensor]]


def make(name: str, size: Size, data: np.ndarray) -> Contender:
    """The contender ``zuko``, ``zuko-coupling`` or ``normflows``, on the kind of device that JAX uses.

    Args:
        name: Which of the three.
        size: The flow and the batches.
        data: States at the boundary T = 1.
    """
    device = _device()
    torch.manual_seed(0)
    density = _DENSITIES[name](size, device)
    states = torch.as_tensor(np.array(data), dtype=torch.float32, device=device)
    steps, healthy = _training(density, states, size)
    u = torch.full((size.batch, 1), float(size.target.condition.chart(0.7)), device=device)

    def sample() -> None:
        with torch.no_grad():
            density.draw(u)
        _synchronise(device)

    parameters = sum(p.numel() for p in density.module.parameters())
    if device.type != "cpu":
        return Contender(name, steps, sample, healthy, parameters)
    threads = {"step": _best_threads(lambda: steps(1)), "sample": _best_threads(sample)}

    def steps_with_threads(n: int) -> None:
        torch.set_num_threads(threads["step"])
        steps(n)

    def sample_with_threads() -> None:
        torch.set_num_threads(threads["sample"])
        sample()

    return Contender(name, steps_with_threads, sample_with_threads, healthy, parameters, threads)


def _best_threads(call: Callable[[], None], trials: int = 3) -> int:
    """All cores or one, whichever is faster: on small tensors threads can cost more than they bring."""
    best = dict.fromkeys(sorted({_CORES, 1}), math.inf)
    for _ in range(trials):
        for threads in best:
            torch.set_num_threads(threads)
            start = time.perf_counter()
            call()
            best[threads] = min(best[threads], time.perf_counter() - start)
    return min(best, key=best.__getitem__)


def _device() -> torch.device:
    if jax.default_backend() == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UnavailableError("JAX runs on a GPU but this PyTorch sees none")
    # JAX multiplies float32 matrices in TF32 on such GPUs; the peers may as well.
    torch.set_float32_matmul_precision("high")
    return torch.device("cuda")


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _import(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UnavailableError(f"{name} cannot be imported ({error})") from error


def _zuko(size: Size, device: torch.device) -> Density:
    """The coupling variant of ``zuko.flows.NSF``: autoregressive in two groups, by masks.

    NSF is this MAF with the bound of the spline fixed at 5.
    """
    zuko = _import("zuko")
    flow = zuko.flows.MAF(size.dimension, passes=2, **_zuko_options(zuko, size)).to(device)
    return _zuko_density(flow)


def _zuko_coupling(size: Size, device: torch.device) -> Density:
    """Splines in zuko's true coupling: half the coordinates pass, and one pass inverts it."""
    zuko = _import("zuko")
    return _zuko_density(zuko.flows.NICE(size.dimension, **_zuko_options(zuko, size)).to(device))


def _zuko_options(zuko: Any, size: Size) -> dict[str, Any]:
    return {
        "context": 1,
        "transforms": size.blocks,
        "univariate": partial(zuko.transforms.MonotonicRQSTransform, bound=size.interval),
        "shapes": [(size.bins,), (size.bins,), (size.bins - 1,)],
        "hidden_features": [size.width] * size.depth,
        "activation": nn.SiLU,
    }


def _zuko_density(flow: Any) -> Density:
    return Density(flow, lambda x, u: flow(u).log_prob(x), lambda u: flow(u).rsample_and_log_prob())


def _normflows(size: Size, device: torch.device) -> Density:
    nf = _import("normflows")
    # One residual block has two activations, as two hidden layers have; none would have no activation.
    layers = [
        nf.flows.CoupledRationalQuadraticSpline(
            size.dimension,
            num_blocks=size.depth // 2,
            num_hidden_channels=size.width,
            num_context_channels=1,
            num_bins=size.bins,
            tail_bound=size.interval,
            activation=nn.SiLU,
            reverse_mask=i % 2 == 1,
        )
        for i in range(size.blocks)
    ]
    base = nf.distributions.DiagGaussian(size.dimension, trainable=False)
    flow = nf.ConditionalNormalizingFlow(base, layers).to(device)
    return Density(flow, flow.log_prob, lambda u: flow.sample(len(u), u))


_DENSITIES: dict[str, Callable[[Size, torch.device], Density]] = {
    "zuko": _zuko,
    "zuko-coupling": _zuko_coupling,
    "normflows": _normflows,
}


def _training(density: Density, data: Tensor, size: Size) -> tuple[Callable[[int], None], Callable[[], bool]]:
    device = data.device
    parameters = list(density.module.parameters())
    optimiser = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    finite = torch.ones((), dtype=torch.bool, device=device)

    def steps(n: int) -> None:
        nonlocal finite
        for _ in range(n):
            loss = trade_loss(density, data, size)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, CLIP)
            optimiser.step()
            finite = finite & torch.isfinite(loss.detach())  # stays on the device: no wait in the loop
        _synchronise(device)

    return steps, lambda: bool(finite)


def trade_loss(density: Density, data: Tensor, size: Size) -> Tensor:
    """The full TRADE loss of one step: NLL at T = 1 plus the mean squared residual.

    Args:
        density: The flow.
        data: States at T = 1 to draw the batch from.
        size: Number of data points, conditions and evaluation points.
    """
    device, condition = data.device, size.target.condition
    batch = data[torch.randint(len(data), (size.batch,), device=device)]
    nll = -density.log_prob(batch, torch.ones(size.batch, 1, device=device)).mean()

    u = (2.0 * torch.rand(size.conditions, 1, device=device) - 1.0).repeat_interleave(size.points, dim=0)
    with torch.no_grad():
        x, log_p = density.draw(u)
        temperature = torch.exp(math.log(condition.high) + condition.slope * (u[:, 0] - 1.0))
        log_q = -(x**4 - 4.0 * x**2).sum(dim=1) / temperature
        score = -condition.slope * log_q  # ∂_u of -E/T, where T is exponential in u
        weight = torch.softmax((log_q - log_p).view(size.conditions, size.points), dim=1)
        mean = (weight * score.view_as(weight)).sum(dim=1).repeat_interleave(size.points)

    u.requires_grad_()
    (model_score,) = torch.autograd.grad(density.log_prob(x, u).sum(), u, create_graph=True)
    residual = model_score[:, 0] - score + mean
    return nll + residual.square().mean()
