"""Trains the U-Net in PyTorch, to compare loss curves with the trainer's: on given batches, or for real on a data file.

Curves, step by step on given batches (explicit attention, fp32 without TF32, or bf16 autocast):

    unet_train.py --make-batches 3 --steps 200 --batch 4 --batches B.safetensors [--data FILE]
    unet_train.py --weights W.safetensors --batches B.safetensors --out LOSSES.json [--dtype bf16] [--perturb K]
                  [--clip 1]

B holds `x0` and `noise` [steps, n, 3, h, w] and `t` [steps, n], or a tensor for each step: `x0.<step>`, `noise.<step>`
and `t.<step>`. x0 is fp32 in [-1, 1] or uint8, NHWC or NCHW. --perturb K moves every weight to one of its two
neighbours in fp32 before training: the distance between such runs is the spread that rounding alone makes.

For real, on images of a data file, timed (bf16, channels_last):

    unet_train.py --data FILE --steps 20000 --batch 32 --compile --graph --clip 1 --ema 0.9999 --out RUN.json --save DIR

Images come in shuffled epochs. The held-out loss is the trainer's (train/held_out.h): the same images, time steps and
noise. Its time is not counted. DIR gets model.safetensors and ema.safetensors, which the trainer can read.
--evaluate W.safetensors computes the held-out loss of weights that the trainer wrote.
"""

import math
import sys
from pathlib import Path

import numpy_and_torch  # noqa: F401

import numpy
import torch

import unet
import unet_common as common
from images import ldata
from speed import waited
from unet_diffusion import Noising, loss_of
from unet_philox import normals
from unet_step import WARM_UPS, Graph, Step, refuse_graph

HELD_OUT_SEED = 0x68656C64  # as in train/held_out.cpp


# --- Curves on given batches


def load_batches(path):
    """Returns [{"x0", "t", "noise"}], one dict for each step, x0 in fp32."""
    tensors, _ = common.load_tensors(path)
    steps = len(tensors["x0"]) if "x0" in tensors else sum(name.startswith("x0.") for name in tensors)

    def of(name, step):
        held = (
            tensors.get(f"{name}.{step}") if "x0" not in tensors else tensors[name][step] if name in tensors else None
        )
        if held is None:
            raise common.Refusal(f"{path} has no {name}")
        return held

    if not steps:
        raise common.Refusal(f"{path} has no x0")
    return [
        {"x0": common.images_of(of("x0", i)), "t": of("t", i).long(), "noise": of("noise", i).float()}
        for i in range(steps)
    ]


def make_batches(options, config):
    """Write random batches; the t of a batch are distinct and include 0 and 999."""
    drawn = numpy.random.default_rng(options.make_batches)
    batches = [common.random_batch(drawn, options.batch, config.image_size) for _ in range(options.steps)]
    if options.data:
        images = data_of(options, config)[0]
        for batch in batches:
            batch["x0"] = common.images_of(torch.from_numpy(images[drawn.integers(0, len(images), options.batch)]))
    common.save_tensors(options.batches, {name: torch.stack([batch[name] for batch in batches]) for name in batches[0]})


@torch.no_grad()
def perturb(model, seed):
    """Move every weight to the next fp32 number above or below."""
    drawn = numpy.random.default_rng(seed)
    for parameter in model.parameters():
        towards = torch.from_numpy(drawn.choice([-math.inf, math.inf], tuple(parameter.shape)).astype(numpy.float32))
        parameter.copy_(torch.nextafter(parameter, towards.to(parameter.device)))


def curve(options, config, device):
    common.exact_fp32()
    model = unet.UNet(config, explicit_attention=True)
    if not options.weights:
        raise common.Refusal("--batches needs --weights to start from")
    common.load_weights(model, options.weights)
    if options.perturb is not None:
        perturb(model, options.perturb)
    batches = load_batches(options.batches)[: options.steps]
    step = Step(
        model.to(device),
        dtype=options.dtype,
        lr=options.lr,
        clip=options.clip,
        ema_rate=options.ema,
        compiled=options.compile,
    )
    outcomes = [step(**{name: tensor.to(device) for name, tensor in batch.items()}) for batch in batches]
    losses = [loss.item() for loss, _ in outcomes]
    save_weights(options, step)
    norms = None if options.clip is None else [norm.item() for _, norm in outcomes]
    how = told_of(options, "dtype perturb clip lr")
    common.save_json(options.out, {"losses": losses, "norms": norms, **how, "versions": common.versions(device)})
    print(f"{len(losses)} steps: loss {losses[0]:.6f} to {losses[-1]:.6f}")
    return 0 if all(map(math.isfinite, losses)) else 1


def told_of(options, names):
    """Returns {flag: value} for a record; `names`: flags separated by spaces."""
    return {name: getattr(options, name) for name in names.split()}


def save_weights(options, step):
    if not options.save:
        return
    names = [name for name, _ in step.model.named_parameters()]
    told = step.model.config.metadata()
    common.save_tensors(Path(options.save) / "model.safetensors", dict(zip(names, step.parameters)), told)
    if step.ema:
        common.save_tensors(Path(options.save) / "ema.safetensors", dict(zip(names, step.ema)), told)


# --- For real


def data_of(options, config):
    """Returns (training images, held-out images), uint8 [n, h, w, 3]. The digest is not checked."""
    head, side = ldata.read_header(options.data), config.image_size
    if head.size != side:
        raise common.Refusal(f"{options.data} has images of {head.size} x {head.size}, the configuration wants {side}")
    pixels = numpy.fromfile(options.data, numpy.uint8, offset=ldata.HEADER_BYTES).reshape(-1, side, side, 3)
    return pixels[: head.count - head.held_out], pixels[head.count - head.held_out :]


class HeldOut:
    """Held-out images with evenly spaced t, one t for each image, and noise of the trainer's stream. A batch's noise
    starts at the stream offset that is its first image's number."""

    def __init__(self, images, batch, device):
        if not len(images):
            raise common.Refusal("the data file holds no image out")
        count, shape = len(images), images.shape[1:]
        batch = min(batch, count)
        noise = [
            normals(HELD_OUT_SEED, first, batch * math.prod(shape)).reshape(batch, *shape)
            for first in range(0, count, batch)
        ]
        t = [(2 * index + 1) * 1000 // (2 * count) for index in range(count)]
        x0 = common.images_of(torch.from_numpy(images)).to(device)
        self.t = torch.tensor(t, device=device)
        self.noise = torch.from_numpy(numpy.concatenate(noise)[:count]).permute(0, 3, 1, 2).to(device)
        self.x_t = Noising(device)(x0, self.t, self.noise)
        self.batch = batch

    @torch.no_grad()
    def loss(self, model, dtype):
        """Returns the mean loss over all held-out images."""
        total = 0.0
        for x_t, t, noise in zip(*(tensor.split(self.batch) for tensor in (self.x_t, self.t, self.noise))):
            with common.precision(x_t.device, dtype):
                pred = model(x_t, t)
            total += loss_of(pred, noise).item() * len(t)
        return total / len(self.t)


def learning_rates(options):
    """Returns [steps] learning rates: a linear rise over --warmup steps, then --decay, to zero after the last step."""
    steps, warmup = numpy.arange(options.steps), options.warmup
    rising = numpy.minimum((steps + 1) / warmup, 1.0) if warmup else numpy.ones(options.steps)
    through = numpy.clip((steps - warmup) / max(options.steps - warmup, 1), 0, 1)
    decay = {
        "constant": numpy.ones(options.steps),
        "linear": 1 - through,
        "cosine": (1 + numpy.cos(numpy.pi * through)) / 2,
    }
    return options.lr * rising * decay[options.decay]


def ema_rates(options):
    """Returns [steps] rates: --ema; with --ema-ramp at most the rate whose half-life is 5 % of the images seen."""
    seen = options.batch * (numpy.arange(options.steps) + 1)
    ramp = 0.5 ** (options.batch / (0.05 * seen))
    return numpy.minimum(ramp, options.ema) if options.ema_ramp else numpy.full(options.steps, options.ema)


def shuffled(count, batch, steps, drawn):
    """Returns image numbers [steps, batch], epoch after epoch, with each image once in an epoch."""
    epochs = -(-steps * batch // count)
    return numpy.concatenate([drawn.permutation(count) for _ in range(epochs)])[: steps * batch].reshape(steps, batch)


def real(options, config, device):
    if options.graph:
        refuse_graph(device)
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(options.seed)
    drawn = numpy.random.default_rng(options.seed)
    train, held = data_of(options, config)
    held_out = HeldOut(held, options.batch, device)
    model = unet.UNet(config)
    if options.weights:
        common.load_weights(model, options.weights)
    model = model.to(device).to(memory_format=torch.channels_last)
    average = unet.UNet(config).to(device).to(memory_format=torch.channels_last)

    images = torch.from_numpy(train).to(device)
    order = torch.from_numpy(shuffled(len(train), options.batch, options.steps, drawn)).to(device)
    # Values that change from step to step lie on the device. AdamW takes a tensor as the learning rate on a GPU only.
    lrs, rates = learning_rates(options), ema_rates(options)
    on_gpu = device.type == "cuda"
    lr = torch.tensor(options.lr, device=device) if on_gpu else options.lr
    rate = torch.tensor(options.ema, device=device) if options.ema_ramp else options.ema
    step = Step(model, dtype=options.dtype, lr=lr, clip=options.clip, ema_rate=rate, compiled=options.compile)
    lr_table, rate_table = (torch.tensor(table, dtype=torch.float32, device=device) for table in (lrs, rates))
    losses = torch.zeros(options.steps, device=device)
    row = torch.zeros(1, dtype=torch.int64, device=device)

    def whole():
        if on_gpu:
            lr.copy_(lr_table[row][0])
        if options.ema_ramp:
            rate.copy_(rate_table[row][0])
        x0 = images[order[row][0]].permute(0, 3, 1, 2).float() / 127.5 - 1
        if options.flip:
            x0 = torch.where(torch.rand(len(x0), 1, 1, 1, device=device) < 0.5, x0.flip(3), x0)
        t = torch.randint(0, 1000, (len(x0),), device=device)
        loss, _ = step(x0.contiguous(memory_format=torch.channels_last), t, torch.randn_like(x0))
        losses[row] = loss
        row.add_(1)

    def evaluate(done):
        for own, averaged in zip(average.parameters(), step.ema):
            own.data.copy_(averaged)
        loss, ema_loss = (held_out.loss(network, options.dtype) for network in (model, average))
        print(f"step {done:6}  held-out {loss:.6f}  EMA {ema_loss:.6f}  {seconds:.1f} s", flush=True)
        return {"step": done, "seconds": seconds, "held_out": loss, "held_out_ema": ema_loss}

    call, seconds = (Graph(whole) if options.graph else whole), 0.0
    record = {
        **told_of(options, "config batch steps dtype compile graph clip lr warmup decay ema ema_ramp seed"),
        "images": len(train),
        "held_out_images": len(held),
        "versions": common.versions(device),
        "evaluations": [evaluate(0)],
    }
    # Time compiling and capturing separately from the steps.
    started = waited(device)
    prepared = min(WARM_UPS + 1, options.steps)
    for _ in range(prepared):
        call()
    record["preparation_seconds"] = waited(device) - started
    for done in range(prepared + 1, options.steps + 1):
        if done == prepared + 1 or (done - 1) % options.every == 0:
            started = waited(device)
        if not on_gpu:
            step.optimizer.param_groups[0]["lr"] = float(lrs[done - 1])
        call()
        if done % options.every == 0 or done == options.steps:
            seconds += waited(device) - started
            record["evaluations"].append(evaluate(done))
            curve_so_far(record, losses[:done], options)
            record["train_seconds"] = seconds
            record["ms_per_step"] = 1e3 * seconds / (done - prepared)
            common.save_json(options.out, record)
            if not math.isfinite(record["evaluations"][-1]["held_out"]):
                raise common.Refusal(f"the held-out loss is not finite after step {done}")
    if on_gpu:
        record["peak_allocated_mib"] = torch.cuda.max_memory_allocated() / 2**20
    save_weights(options, step)
    common.save_json(options.out, record)
    return 0


def curve_so_far(record, losses, options):
    """Store the loss curve in the record: means over --window steps."""
    full = losses[: len(losses) // options.window * options.window].view(-1, options.window).mean(1)
    record["window"], record["losses"] = options.window, [round(value, 6) for value in full.tolist()]


def evaluate_file(options, config, device):
    model = unet.UNet(config)
    common.load_weights(model, options.evaluate)
    loss = HeldOut(data_of(options, config)[1], options.batch, device).loss(model.to(device), options.dtype)
    print(f"held-out {loss:.6f}")
    if options.out:
        common.save_json(options.out, {"held_out": loss, "dtype": options.dtype})
    return 0


def main(arguments=None):
    parser = common.parser_of(__doc__.splitlines()[0])
    parser.add_argument("--batches", help="safetensors of given batches")
    parser.add_argument(
        "--make-batches", type=int, metavar="SEED", help="write --batches instead: --steps of --batch images"
    )
    parser.add_argument("--data", help="file that `./ladder prepare` made")
    parser.add_argument("--evaluate", metavar="WEIGHTS", help="only their held-out loss")
    parser.add_argument(
        "--weights", help="safetensors to start from (default: fresh ones from --seed; --batches needs them)"
    )
    parser.add_argument("--out", help="JSON to write")
    parser.add_argument("--save", metavar="DIR", help="for the weights in the end")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), help="default: fp32 of --batches, else bf16")
    parser.add_argument("--perturb", type=int, metavar="K", help="seed of a change by one ulp")
    parser.add_argument("--steps", type=int, help="default: all batches, or 20000")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--warmup", type=int, default=0, help="steps over which the learning rate rises")
    parser.add_argument("--decay", choices=("constant", "linear", "cosine"), default="constant")
    parser.add_argument("--clip", type=float, help="bound of the gradient norm (default: none)")
    parser.add_argument("--ema", type=float, help="rate (default: 0.9999 of --data, else none)")
    parser.add_argument("--ema-ramp", action="store_true", help="half-life at most 5 %% of the images seen")
    parser.add_argument("--flip", action="store_true", help="half of the images mirrored")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1000, help="steps between held-out losses")
    parser.add_argument("--window", type=int, default=10, help="steps whose mean is one point of the recorded curve")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--graph", action="store_true", help="the whole step of --data in one CUDA graph")
    options = parser.parse_args(arguments)
    if options.steps is not None and options.steps < 1 or min(options.batch, options.every, options.window) < 1:
        parser.error("--steps, --batch, --every and --window are 1 or more")
    if not (options.batches or options.data):
        parser.error("--batches or --data: what to learn")
    if options.evaluate and not options.data:
        parser.error("--evaluate needs --data")
    if not (options.out or options.evaluate or options.make_batches is not None):
        parser.error("--out: where to write the losses")
    return common.run(work, options, unet.CONFIGS[options.config])


def work(options, config):
    options.dtype = options.dtype or ("fp32" if options.batches else "bf16")
    if options.make_batches is not None:
        options.steps = options.steps or 10
        return make_batches(options, config)
    device = common.device_of(options)
    if options.evaluate:
        return evaluate_file(options, config, device)
    if options.batches:
        if options.graph:
            raise common.Refusal("--graph is for --data: given batches are called one by one")
        return curve(options, config, device)
    options.steps = options.steps or 20000
    options.ema = 0.9999 if options.ema is None else options.ema
    return real(options, config, device)


if __name__ == "__main__":
    sys.exit(main())
