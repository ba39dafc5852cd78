"""One training step in PyTorch: loss, gradients, clipping, AdamW and the EMA of the weights, eager or compiled, called
or replayed as a CUDA graph. Values that change from step to step can live on the device, so that one graph serves all
steps."""

import torch

import unet_common as common
from unet_diffusion import Noising, loss_of

WARM_UPS = 3  # calls before the capture, in which libraries choose kernels and torch.compile compiles


class Step:
    """The weights, their EMA and AdamW's state, and the step that changes them."""

    def __init__(self, model, *, dtype="bf16", lr=1e-4, clip=None, ema_rate=None, compiled=False, compile_options=None):
        """`model` lies on its device. clip: the gradient norm's bound. ema_rate: a number, or a 0-dimensional tensor on
        the device that may change between steps; lr likewise, on a CUDA device. compile_options: arguments of
        torch.compile."""
        self.model, self.dtype, self.clip, self.ema_rate = model, dtype, clip, ema_rate
        self.parameters = list(model.parameters())
        self.device = self.parameters[0].device
        self.noising = Noising(self.device)
        self.ema = [parameter.detach().clone() for parameter in self.parameters] if ema_rate is not None else []
        fast = {"fused": True, "capturable": True} if self.device.type == "cuda" else {}
        self.optimizer = torch.optim.AdamW(self.parameters, lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, **fast)
        self.loss_function = (
            torch.compile(self.loss, dynamic=False, **(compile_options or {})) if compiled else self.loss
        )

    def loss(self, x0, t, noise):
        with common.precision(self.device, self.dtype):
            pred = self.model(self.noising(x0, t, noise), t)
        return loss_of(pred, noise)

    def __call__(self, x0, t, noise):
        """Returns the loss before the update and the gradient norm (NaN without clipping), on the device, without
        synchronising. x0 and noise: [n, 3, h, w] fp32; t: [n]."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_function(x0, t, noise)
        loss.backward()
        norm = (
            torch.nn.utils.clip_grad_norm_(self.parameters, self.clip)
            if self.clip is not None
            else torch.full((), float("nan"), device=self.device)
        )
        self.optimizer.step()
        self.update_ema()
        return loss.detach(), norm

    @torch.no_grad()
    def update_ema(self):
        """ema = rate ema + (1 - rate) weights"""
        if isinstance(self.ema_rate, torch.Tensor):
            change = torch._foreach_sub(self.parameters, self.ema)
            torch._foreach_mul_(change, 1 - self.ema_rate)
            torch._foreach_add_(self.ema, change)
        elif self.ema_rate is not None:
            torch._foreach_lerp_(self.ema, self.parameters, 1 - self.ema_rate)


class Graph:
    """Wrapper of `function`, which has no arguments and changes tensors in place. The first `warm_ups` calls run it
    directly; later calls replay one CUDA graph, captured on the current stream (not the default stream: see
    unet_common.device_of)."""

    def __init__(self, function, warm_ups=WARM_UPS):
        self.function, self.warm_ups, self.calls, self.graph, self.out = function, warm_ups, 0, None, None

    def __call__(self):
        """Returns the function's result; once captured, the capture's result, which replays overwrite."""
        if self.calls < self.warm_ups:
            self.out = self.function()
        else:
            if self.graph is None:
                self.capture()
            self.graph.replay()
        self.calls += 1
        return self.out

    def capture(self):
        """Capture a call without running it."""
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # NCCL's watchdog queries events on a thread of its own, which must not end the capture.
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self.out = self.function()
        torch.cuda.synchronize()
        self.graph = graph


def refuse_graph(device):
    """Refuse a device without CUDA graphs."""
    if device.type != "cuda":
        raise common.Refusal("a CUDA graph needs --device cuda")
